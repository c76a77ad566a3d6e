//! Reads from the headers of the built program how it is hardened. Link arguments are the same in every profile, so what holds
//! for this program holds for the release.

use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The parts of an ELF file that say how the loader and the kernel treat it.
struct Elf {
    bytes: Vec<u8>,
}

/// One entry of the program header table: type, flags, and the bytes of the file.
struct Segment {
    kind: u32,
    flags: u32,
    range: Range<usize>,
}

const ET_DYN: u64 = 3;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_GNU_STACK: u32 = 0x6474_e551;
const PT_GNU_RELRO: u32 = 0x6474_e552;
const PF_X: u32 = 1;
const DT_FLAGS: u64 = 30;
const DT_FLAGS_1: u64 = 0x6fff_fffb;
const DF_BIND_NOW: u64 = 8;
const DF_1_NOW: u64 = 1;
const DF_1_PIE: u64 = 0x0800_0000;

impl Elf {
    fn of_the_program() -> Elf {
        let bytes = std::fs::read(env!("CARGO_BIN_EXE_purlin")).unwrap();
        // 64 bits, little-endian.
        assert_eq!(bytes[..6], *b"\x7fELF\x02\x01");
        Elf { bytes }
    }

    fn number(&self, at: usize, size: usize) -> u64 {
        self.bytes[at..at + size].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    fn kind(&self) -> u64 {
        self.number(16, 2)
    }

    fn segments(&self) -> Vec<Segment> {
        let as_size = |number: u64| usize::try_from(number).unwrap();
        let (table, size, count) = (self.number(32, 8), self.number(54, 2), self.number(56, 2));
        let entry = |index: u64| {
            let at = as_size(table + index * size);
            let start = as_size(self.number(at + 8, 8));
            let length = as_size(self.number(at + 32, 8));
            let (kind, flags) = (self.number(at, 4), self.number(at + 4, 4));
            let narrow = |number: u64| u32::try_from(number).unwrap();
            Segment { kind: narrow(kind), flags: narrow(flags), range: start..start + length }
        };
        (0..count).map(entry).collect()
    }

    fn segment(&self, kind: u32) -> Option<Segment> {
        self.segments().into_iter().find(|segment| segment.kind == kind)
    }

    /// A value of the dynamic section; zero if it is not there.
    fn dynamic(&self, tag: u64) -> u64 {
        let range = self.segment(PT_DYNAMIC).unwrap().range;
        let mut entries = range.step_by(16).map(|at| (self.number(at, 8), self.number(at + 8, 8)));
        entries.find(|(known, _)| *known == tag).map_or(0, |(_, value)| value)
    }
}

#[test]
fn program_is_position_independent() {
    let elf = Elf::of_the_program();
    assert_eq!(elf.kind(), ET_DYN);
    assert!(elf.segment(PT_INTERP).is_some(), "a program, not a library");
    assert_ne!(elf.dynamic(DT_FLAGS_1) & DF_1_PIE, 0);
}

#[test]
fn relocated_data_is_read_only_before_the_program_runs() {
    let elf = Elf::of_the_program();
    assert!(elf.segment(PT_GNU_RELRO).is_some());
    assert_ne!(elf.dynamic(DT_FLAGS) & DF_BIND_NOW, 0);
    assert_ne!(elf.dynamic(DT_FLAGS_1) & DF_1_NOW, 0);
}

#[test]
fn no_stack_is_executable() {
    let stack = Elf::of_the_program().segment(PT_GNU_STACK).unwrap();
    assert_eq!(stack.flags & PF_X, 0);
}

/// SQLite, the grammar of the shell and the ciphers are written in C.
#[test]
fn c_code_has_stack_protectors() {
    let elf = Elf::of_the_program();
    let name = b"\0__stack_chk_fail\0";
    assert!(elf.bytes.windows(name.len()).any(|window| window == name));
}

/// An unprivileged user id; the system need not know it.
const USER: u32 = 12345;

/// Keys are in the memory and perhaps in the environment: other programs of the user cannot read them, and no core dump has them.
// R: O1
#[test]
#[expect(clippy::disallowed_methods, reason = "started as another user")]
fn memory_and_environment_are_unreadable_for_others() {
    let directory = crate::directory::Directory::new();
    let program = directory.join("purlin");
    std::fs::copy(env!("CARGO_BIN_EXE_purlin"), &program).unwrap();
    let mut command = Command::new(&program);
    command.arg("acp").env_clear().env("HOME", &*directory).env("SECRET_KEY", "canary");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&*directory, Some(USER), Some(USER)).unwrap();
        command.uid(USER).gid(USER);
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}"#;
    writeln!(input, "{hello}").unwrap();
    let mut answer = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut answer).unwrap();
    let at = |file: &str| format!("/proc/{}/{file}", child.id());
    // The files of a process that other processes of its user may not inspect belong to root.
    for file in ["environ", "mem", "maps"] {
        assert_eq!(std::fs::metadata(at(file)).unwrap().uid(), 0, "{file}");
    }
    let limits = std::fs::read_to_string(at("limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    drop(input);
    child.wait().unwrap();
}
