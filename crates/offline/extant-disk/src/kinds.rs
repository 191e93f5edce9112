//! Types of partitions by name.

/// GPT's types, from the specification of discoverable partitions and from UEFI.
const GPT: &[(&str, &str)] = &[
    ("c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "EFI system"),
    ("21686148-6449-6e6f-744e-656564454649", "BIOS boot"),
    ("bc13c2ff-59e6-4262-a352-b275fd6f7172", "Linux boot"),
    ("0fc63daf-8483-4772-8e79-3d69d8477de4", "Linux"),
    ("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f", "Linux swap"),
    ("933ac7e1-2eb4-4f13-b844-0e14e2aef915", "Linux home"),
    ("3b8f8425-20e0-4f3b-907f-1a25a76f98e8", "Linux server data"),
    (
        "4d21b016-b534-45c2-a9fb-5c16e091fd2d",
        "Linux variable data",
    ),
    ("44479540-f297-41b2-9af7-d131d5f0458a", "Linux root (x86)"),
    (
        "4f68bce3-e8cd-4db1-96e7-fbcaf984b709",
        "Linux root (x86-64)",
    ),
    ("b921b045-1df0-41c3-af44-4c6f280d3fae", "Linux root (arm64)"),
    ("69dad710-2ce4-4e3c-b16c-21a1d49abed3", "Linux root (arm)"),
    (
        "72ec70a6-cf74-40e6-bd49-4bda08e8f224",
        "Linux root (riscv64)",
    ),
    ("e6d6d379-f507-44c2-a23c-238f2a3df928", "Linux LVM"),
    ("a19d880f-05fc-4d3b-a006-743f0f84911e", "Linux RAID"),
    ("ca7d7ccb-63ed-4c53-861c-1742536059cc", "LUKS"),
    ("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7", "basic data"),
    ("e3c9e316-0b5c-4db8-817d-f92df00215ae", "Microsoft reserved"),
];

/// MBR's types.
const MBR: &[(u8, &str)] = &[
    (0x01, "FAT12"),
    (0x04, "FAT16"),
    (0x06, "FAT16"),
    (0x07, "NTFS or exFAT"),
    (0x0b, "FAT32"),
    (0x0c, "FAT32"),
    (0x0e, "FAT16"),
    (0x82, "Linux swap"),
    (0x83, "Linux"),
    (0x8e, "Linux LVM"),
    (0xef, "EFI system"),
    (0xfd, "Linux RAID"),
];

/// Returns the name of a GPT type, or its GUID.
pub fn of_gpt(guid: &str) -> String {
    let known = GPT.iter().find(|(g, _)| g.eq_ignore_ascii_case(guid));
    known.map_or(guid, |(_, name)| name).to_string()
}

/// Returns the name of an MBR type, or its number.
pub fn of_mbr(number: u8) -> String {
    let known = MBR.iter().find(|(n, _)| *n == number);
    known.map_or_else(|| format!("type {number:#04x}"), |(_, name)| (*name).into())
}
