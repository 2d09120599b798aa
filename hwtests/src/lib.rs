//! One set of stories, told to the simulator and to the card.
