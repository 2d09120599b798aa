//! Who this process is, and who others are.

use crate::read::{Fact, Reader};

/// Most bytes of a list of users or groups.
const LIST_BYTES: usize = 1 << 20;

/// The number of a user, given by name or by number; `None`: there is no such user.
///
/// # Errors
/// The list of users cannot be read.
pub fn uid_of(reader: Reader<'_>, user: &str) -> Fact<Option<u32>> {
    number_of(reader, "/etc/passwd", user)
}

/// The number of a group, given by name or by number; `None`: there is no such group.
///
/// # Errors
/// The list of groups cannot be read.
pub fn gid_of(reader: Reader<'_>, group: &str) -> Fact<Option<u32>> {
    number_of(reader, "/etc/group", group)
}

/// Both lists have the name in the first field of a line and the number in the third.
fn number_of(reader: Reader<'_>, list: &str, name: &str) -> Fact<Option<u32>> {
    if let Ok(number) = name.parse() {
        return Ok(Some(number));
    }
    let text = reader.text(list, LIST_BYTES)?;
    let entry = text.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == name);
    Ok(entry.and_then(|fields| fields.get(2)?.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeHost;

    #[test]
    fn user_is_found_by_name_and_by_number() {
        let mut host = FakeHost::empty();
        host.file(
            "/etc/passwd",
            "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/srv/alice:/bin/sh\nbroken\n",
        );
        let uid = |user: &str| uid_of(Reader::new(&host), user).expect("a list");
        assert_eq!(
            (uid("alice"), uid("1234"), uid("bob"), uid("broken")),
            (Some(1000), Some(1234), None, None)
        );
        assert!(uid_of(Reader::new(&FakeHost::empty()), "alice").is_err());
    }
}
