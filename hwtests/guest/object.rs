//! What must be read out of ELF files: which libraries a program needs, and which modules a kernel module needs.
//!
//! Nothing is executed to find out, so the programs of another release can be looked at. A file that is no 64-bit
//! little-endian ELF needs nothing.

const SECTION_STRINGS: u32 = 3;
const SECTION_DYNAMIC: u32 = 6;
const TAG_NEEDED: u64 = 1;

/// One section header: what kind, where, how long, and which other section it goes with.
#[derive(Clone, Copy)]
struct Section {
    kind: u32,
    offset: usize,
    size: usize,
    link: usize,
}

fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let slice = bytes.get(at..at.checked_add(width)?)?;
    Some(slice.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

fn index(bytes: &[u8], at: usize, width: usize) -> Option<usize> {
    usize::try_from(number(bytes, at, width)?).ok()
}

fn sections(bytes: &[u8]) -> Option<Vec<Section>> {
    if !bytes.starts_with(b"\x7FELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (index(bytes, 0x28, 8)?, index(bytes, 0x3A, 2)?, index(bytes, 0x3C, 2)?);
    (0..count)
        .map(|n| {
            let at = table.checked_add(n * size)?;
            Some(Section {
                kind: number(bytes, at + 4, 4)? as u32,
                offset: index(bytes, at + 0x18, 8)?,
                size: index(bytes, at + 0x20, 8)?,
                link: index(bytes, at + 0x28, 4)?,
            })
        })
        .collect()
}

fn text_at(bytes: &[u8], at: usize) -> Option<String> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    String::from_utf8(rest[..end].to_vec()).ok()
}

/// The libraries that a program or library names as needed.
pub(crate) fn needed_libraries(bytes: &[u8]) -> Vec<String> {
    let find = || -> Option<Vec<String>> {
        let sections = sections(bytes)?;
        let dynamic = sections.iter().find(|section| section.kind == SECTION_DYNAMIC)?;
        let strings = sections.get(dynamic.link).filter(|section| section.kind == SECTION_STRINGS)?;
        let entries = (0..dynamic.size / 16).map(|n| dynamic.offset + 16 * n);
        let names = entries
            .filter(|at| number(bytes, *at, 8) == Some(TAG_NEEDED))
            .filter_map(|at| text_at(bytes, strings.offset.checked_add(index(bytes, at + 8, 8)?)?));
        Some(names.collect())
    };
    find().unwrap_or_default()
}

/// The modules that a kernel module names in its `depends=`, with underscores.
pub(crate) fn needed_modules(bytes: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = bytes.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let names = text_at(bytes, at + KEY.len()).unwrap_or_default();
    names.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_names_the_c_library() {
        let own = std::fs::read(std::env::current_exe().expect("a running program")).expect("its file");
        let needed = needed_libraries(&own);
        assert!(needed.iter().any(|name| name.starts_with("libc.so")), "{needed:?}");
    }

    #[test]
    fn what_is_no_program_needs_nothing_and_a_cut_one_does_not_panic() {
        assert!(needed_libraries(b"#!/bin/sh\n").is_empty());
        let own = std::fs::read(std::env::current_exe().expect("a running program")).expect("its file");
        for cut in [0, 5, 0x28, 0x40, 4096] {
            assert!(needed_libraries(&own[..cut]).is_empty(), "cut at {cut}");
        }
    }

    #[test]
    fn a_module_names_its_modules_with_underscores() {
        let info = b"license=GPL\0depends=ib-core,rdmavt\0name=x\0";
        assert_eq!(needed_modules(info), ["ib_core", "rdmavt"]);
        assert!(needed_modules(b"license=GPL\0depends=\0").is_empty());
        assert!(needed_modules(b"").is_empty());
    }
}
