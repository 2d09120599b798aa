//! A register access through `Bar` on the mapped window is the load or store itself plus at most a bounds compare.
//!
//! `cargo bench -p qhca-bench --bench bar`. The program has objdump take it apart and compares its own functions: those
//! that go through the bar, at a constant offset as drivers do, with bare volatile accesses. It fails if more than one compare and one branch is left over.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::{Command, ExitCode};

use qhca_regs::map::device::{ERR_MASK, INT_STATUS};
use qhca_regs::{Bar, MemoryWindow, MmioBar};
use vcell::VolatileCell;

#[inline(never)]
fn bare_read(register: &VolatileCell<u64>) -> u64 {
    register.get()
}

#[inline(never)]
fn bar_read(bar: &MmioBar) -> u64 {
    bar.read(INT_STATUS.offset())
}

#[inline(never)]
fn bare_write(register: &VolatileCell<u64>, value: u64) {
    register.set(value);
}

#[inline(never)]
fn bar_write(bar: &MmioBar, value: u64) {
    bar.write(ERR_MASK.offset(), value);
}

#[inline(never)]
fn bar_doorbell(bar: &MmioBar, value: u64) {
    bar.doorbell(ERR_MASK.offset() + 8, value);
}

/// Function through the bar, bare function.
const PAIRS: [(&str, &str); 3] =
    [("bar_read", "bare_read"), ("bar_write", "bare_write"), ("bar_doorbell", "bare_write")];

fn main() -> ExitCode {
    call_all();
    let functions = match disassemble() {
        Ok(functions) => functions,
        Err(why) => {
            eprintln!("bar: {why}");
            return ExitCode::FAILURE;
        }
    };
    let mut failed = false;
    for (bar, bare) in PAIRS {
        match compare(&functions, bar, bare) {
            Ok(left_over) => println!("{bar}: {bare} plus {left_over:?}"),
            Err(why) => {
                println!("{why}");
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Keeps the functions in the program.
fn call_all() {
    let mut memory = [0; 0x100];
    let window = MemoryWindow::new(&mut memory);
    let register = VolatileCell::new(0);
    // Values that the compiler cannot know, so that it stores what it is given in all of them.
    bar_write(black_box(&window), black_box(7));
    bar_doorbell(black_box(&window), black_box(7));
    bare_write(black_box(&register), black_box(7));
    assert_eq!(bar_read(black_box(&window)) + bare_read(black_box(&register)), 7);
}

/// Mnemonics of each function, up to its first `ret`.
fn disassemble() -> Result<BTreeMap<String, Vec<String>>, String> {
    let program = std::env::current_exe().map_err(|error| format!("its own path: {error}"))?;
    let mut objdump = Command::new("objdump");
    objdump.args(["--disassemble", "--no-show-raw-insn", "--demangle"]).arg(program);
    let output = objdump.output().map_err(|error| format!("objdump (package binutils): {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut functions = BTreeMap::new();
    for block in text.split("\n\n") {
        let mut lines = block.trim_start().lines();
        let head = lines.next().unwrap_or_default();
        let wanted = PAIRS.iter().flat_map(|(bar, bare)| [bar, bare]);
        let Some(name) = wanted.into_iter().find(|name| head.contains(&format!("::{name}"))) else {
            continue;
        };
        let mnemonics = lines.filter_map(|line| line.split('\t').nth(1)?.split_whitespace().next());
        let mut body: Vec<String> = mnemonics.map(str::to_owned).collect();
        body.truncate(body.iter().position(|word| word.starts_with("ret")).unwrap_or(body.len()));
        functions.insert((*name).to_owned(), body);
    }
    Ok(functions)
}

/// What `bar` has that `bare` has not; an error if it is more than a compare and a branch.
fn compare(functions: &BTreeMap<String, Vec<String>>, bar: &str, bare: &str) -> Result<Vec<String>, String> {
    let body = |name: &str| functions.get(name).ok_or_else(|| format!("{name} is not in the program"));
    let mut left_over = body(bar)?.clone();
    for word in body(bare)? {
        let Some(place) = left_over.iter().position(|other| other == word) else {
            return Err(format!("{bar} has no {word}, which {bare} has: {left_over:?}"));
        };
        left_over.remove(place);
    }
    let is_check = |word: &String| word.starts_with("cmp") || (word.starts_with('j') && word != "jmp");
    let checks = left_over.iter().filter(|word| is_check(word)).count();
    if checks == left_over.len() && checks <= 2 {
        Ok(left_over)
    } else {
        Err(format!("{bar} is more than {bare} and a bounds compare: {left_over:?}"))
    }
}
