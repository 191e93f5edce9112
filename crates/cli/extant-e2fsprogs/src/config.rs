//! mke2fs.conf(5): the values of new volumes, by their type and their usage types.

use std::collections::BTreeMap;

/// Path of the configuration, unless `MKE2FS_CONFIG` names another.
const PLACE: &str = "/etc/mke2fs.conf";

/// Features of a volume if the configuration does not list base features.
const BASE_FEATURES: &str = "sparse_super,large_file,filetype,resize_inode,dir_index";

/// Section, subsection or empty, and name of a value.
type Key = (String, String, String);

/// The contents of a configuration file.
#[derive(Debug, Default)]
pub(super) struct Config {
    /// `None` if there is no configuration file; then the defaults of `extant mkfs` apply.
    values: Option<BTreeMap<Key, String>>,
}

/// Types of a volume; values of later types override values of earlier ones.
pub(super) struct Types(Vec<String>);

impl Types {
    /// Combines a type and comma-separated usage types. Without usage types, the size of the volume decides.
    pub fn new(fs_type: &str, usage: Option<&str>, size: Option<u64>) -> Self {
        const MIB: u64 = 1 << 20;
        let by_size = match size.unwrap_or(0) / MIB {
            _ if size.is_none() => "default",
            0..3 => "floppy",
            3..512 => "small",
            512..0x40_0000 => "default",
            0x40_0000..0x100_0000 => "big",
            _ => "huge",
        };
        let usages = usage.unwrap_or(by_size).split(',');
        let all = std::iter::once(fs_type).chain(usages);
        Self(all.map(str::to_owned).collect())
    }

    /// Adds a type behind the others.
    pub fn add(&mut self, name: &str) {
        self.0.push(name.to_owned());
    }

    /// Returns the types, separated by spaces.
    pub fn shown(&self) -> String {
        self.0.join(" ")
    }
}

impl Config {
    /// Reads the configuration of the system; empty if the file is missing.
    pub fn read() -> Result<Self, String> {
        let path = std::env::var_os("MKE2FS_CONFIG").unwrap_or_else(|| PLACE.into());
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Self::parse(&text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// Parses a configuration. If a name has several values, the first counts.
    pub fn parse(text: &str) -> Self {
        let mut values = BTreeMap::new();
        let (mut section, mut below) = (String::new(), String::new());
        for line in text.lines().map(str::trim) {
            if line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                section = name.trim().to_owned();
                below.clear();
            } else if line == "}" {
                below.clear();
            } else if let Some((key, value)) = line.split_once('=') {
                let (key, value) = (key.trim().trim_matches('"'), value.trim());
                if value == "{" {
                    below = key.to_owned();
                } else {
                    let key = (section.clone(), below.clone(), key.to_owned());
                    let value = value.trim_matches('"').to_owned();
                    values.entry(key).or_insert(value);
                }
            }
        }
        Self {
            values: Some(values),
        }
    }

    /// Returns whether a configuration file exists.
    pub const fn is_there(&self) -> bool {
        self.values.is_some()
    }

    /// Returns whether the configuration has values for a type.
    pub fn defines(&self, name: &str) -> bool {
        let mut keys = self.values.iter().flat_map(BTreeMap::keys);
        keys.any(|(section, below, _)| section == "fs_types" && below == name)
    }

    fn at(&self, section: &str, below: &str, key: &str) -> Option<&str> {
        let key = (section.to_owned(), below.to_owned(), key.to_owned());
        self.values.as_ref()?.get(&key).map(String::as_str)
    }

    /// Returns the value for a volume of these types: that of the last type with this value, else the default.
    pub fn value(&self, types: &Types, key: &str) -> Option<&str> {
        let of_type = |name: &String| self.at("fs_types", name, key);
        let found = types.0.iter().rev().find_map(of_type);
        found.or_else(|| self.at("defaults", "", key))
    }

    /// Returns a value that is a whole number.
    pub fn number(&self, types: &Types, key: &str) -> Result<Option<i64>, String> {
        let Some(text) = self.value(types, key) else {
            return Ok(None);
        };
        let number = text.parse().map(Some);
        number.map_err(|_| format!("mke2fs.conf: {key} = {text}: not a whole number"))
    }

    /// Returns a value that is yes or no.
    pub fn is_on(&self, types: &Types, key: &str) -> Result<Option<bool>, String> {
        let Some(text) = self.value(types, key) else {
            return Ok(None);
        };
        match text.to_ascii_lowercase().as_str() {
            "y" | "yes" | "t" | "true" | "1" | "on" => Ok(Some(true)),
            "n" | "no" | "f" | "false" | "nil" | "0" | "off" => Ok(Some(false)),
            _ => Err(format!("mke2fs.conf: {key} = {text}: neither yes nor no")),
        }
    }

    /// Returns the default type of a volume, if the command line names no type.
    pub fn default_type(&self, device: &str, journal: bool) -> String {
        let said = self.at("devices", device, "fs_type");
        let said = said.or_else(|| self.at("defaults", "", "fs_type"));
        let fallback = if journal { "ext3" } else { "ext2" };
        said.unwrap_or(fallback).to_owned()
    }

    /// Returns the default usage types of a device, if the command line names none.
    pub fn default_usage(&self, device: &str) -> Option<String> {
        self.at("devices", device, "usage_types").map(str::to_owned)
    }

    /// Returns the features of a new volume of these types; `None` for the features of `extant mkfs`.
    pub fn features(&self, types: &Types) -> Option<String> {
        self.values.as_ref()?;
        let base = self.value(types, "base_features").unwrap_or(BASE_FEATURES);
        let mut all = vec!["none", base];
        let of_types = types.0.iter();
        all.extend(of_types.filter_map(|name| self.at("fs_types", name, "features")));
        all.extend(self.value(types, "default_features"));
        let words = all.iter().flat_map(|list| list.split([',', ' ', '\t']));
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        Some(words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# of a system\n[defaults]\n\tbase_features = sparse_super, filetype\n\tfs_type = ext4\n\tinode_ratio = 16384\n\n\
        [fs_types]\n\text4 = {\n\t\tfeatures = has_journal,extent\n\t\tblocksize = 4096\n\t\tinode_ratio = 8192\n\t\tinode_ratio = 1\n\t}\n\
        \tsmall = {\n\t\tblocksize = 1024\n\t\tfeatures = \"^extent uninit_bg\"\n\t\tlazy_itable_init = Yes\n\t}\n\
        [devices]\n\t/dev/fd0 = {\n\t\tfs_type = ext2\n\t\tusage_types = floppy\n\t}\n";

    #[test]
    fn values_by_type_and_usage() {
        let config = Config::parse(TEXT);
        let ext4 = Types::new("ext4", None, Some(1 << 30));
        let small = Types::new("ext4", None, Some(8 << 20));
        let ext2 = Types::new("ext2", None, None);
        assert_eq!(ext4.shown(), "ext4 default");
        assert_eq!(config.number(&ext4, "inode_ratio"), Ok(Some(8192)));
        assert_eq!(config.number(&ext2, "inode_ratio"), Ok(Some(16_384)));
        assert_eq!(config.number(&small, "blocksize"), Ok(Some(1024)));
        assert_eq!(config.number(&small, "inode_size"), Ok(None));
        assert_eq!(config.is_on(&small, "lazy_itable_init"), Ok(Some(true)));
        assert!(config.is_on(&small, "blocksize").is_err());
        assert_eq!(config.default_type("x.img", false), "ext4");
        assert_eq!(config.default_type("/dev/fd0", false), "ext2");
        assert_eq!(config.default_usage("/dev/fd0").as_deref(), Some("floppy"));
    }

    #[test]
    fn features_add_up() {
        let config = Config::parse(TEXT);
        let features = |fs_type, usage| config.features(&Types::new(fs_type, Some(usage), None));
        assert_eq!(
            features("ext4", "small").as_deref(),
            Some("none,sparse_super,filetype,has_journal,extent,^extent,uninit_bg")
        );
        assert_eq!(
            features("ext2", "default").as_deref(),
            Some("none,sparse_super,filetype")
        );
        let empty = Config::parse("");
        let types = Types::new("ext3", None, None);
        assert_eq!(
            empty.features(&types),
            Some(format!("none,{BASE_FEATURES}"))
        );
        assert_eq!(empty.default_type("x", true), "ext3");
        assert_eq!(Config::default().features(&types), None);
    }
}
