//! A place in an open image, as an address names it: a path from a directory, or an inode by its number.

use crate::address::{Address, base_name, bytes, join, os};
use crate::format::show::ShowPath;
use anyhow::{Result, bail, ensure};
use extant::unstable::Node;
use extant::{
    Credentials, Dir, Error, File, FileType, Metadata, OpenOptions, SetAttributes, SetXattr, Volume,
};

/// A place in an image.
pub struct ImagePlace {
    /// Image of the place.
    pub volume: Volume,
    /// The directory that the path starts at: the root, or the one that a number names.
    pub dir: Dir,
    /// The path from there; "." for an inode number.
    pub path: Vec<u8>,
    /// The inode, if the address is its number alone.
    node: Option<Node>,
    /// The address, for messages.
    pub address: Address,
}

/// Returns the inode of a number in an address.
fn numbered(volume: &Volume, ino: u32) -> Result<Node> {
    let geometry = volume.geometry();
    let root = volume.root().ino();
    let (first, count) = (geometry.first_ino, geometry.inodes_count);
    ensure!(
        ino > 0 && ino <= count,
        "there is no inode {ino}: this image has those from {root} to {count}"
    );
    ensure!(
        ino == root || ino >= first,
        "inode {ino} is the file system's own: files have the numbers {root} and {first} to {count}"
    );
    match Node::of_number(volume, ino) {
        Err(Error::StaleInode(_)) => bail!("inode {ino} is free: extant ls -Ri lists those in use"),
        other => Ok(other?),
    }
}

impl ImagePlace {
    /// Finds the start of an address; a path is not walked yet.
    pub fn of(volume: &Volume, address: &Address) -> Result<Self> {
        let mut place = Self {
            volume: volume.clone(),
            dir: volume.root(),
            path: address.path.clone(),
            node: None,
            address: address.clone(),
        };
        let Some((ino, path)) = address.number() else {
            return Ok(place);
        };
        let node = numbered(volume, ino)?;
        if node.file_type() == FileType::Directory {
            place.dir = volume.open_dir_ino(ino)?;
        } else if !path.is_empty() {
            return Err(Error::NotDirectory.into());
        }
        if path.is_empty() {
            place.path = b".".to_vec();
            place.node = Some(node);
        } else {
            place.path = path.to_vec();
        }
        Ok(place)
    }

    /// Returns the address of a path that starts where this one does.
    pub fn at(&self, path: &[u8]) -> Address {
        match self.address.number() {
            Some((ino, _)) => {
                let start = format!("<{ino}>");
                let path = if path == b"." { b"" } else { path };
                self.address.at(&join(start.as_bytes(), path))
            }
            None => self.address.at(path),
        }
    }

    /// Returns the inode, if the address is its number.
    pub fn node(&self) -> Option<&Node> {
        self.node.as_ref()
    }

    /// Fails if the address is a number, for operations on a name in its directory.
    pub fn needs_name(&self) -> Result<()> {
        let Some(node) = &self.node else {
            return Ok(());
        };
        let image = self.address.image.shown();
        let ino = node.ino();
        bail!(
            "a name is needed, not a number: `extant ls -Ri {image}:` shows which names lead to inode {ino}"
        )
    }

    /// Returns the directory of a path from this start, and the last name.
    pub fn in_parent<'p>(&self, path: &'p [u8]) -> extant::Result<(Node, &'p [u8])> {
        let name = base_name(path);
        let end = path.iter().rposition(|&b| b != b'/').map_or(0, |i| i + 1);
        let above = match &path[..end - name.len()] {
            b"" => b".",
            above => above,
        };
        let above = self.dir.open_dir(os(above))?;
        Ok((Node::of_number(&self.volume, above.ino())?, name))
    }

    /// Returns the inode of the directory of a path from this start, and the last name. Two paths with the same are one name of a file,
    /// even if they lead there through different links.
    pub fn resolved_name<'p>(&self, path: &'p [u8]) -> Option<(u32, &'p [u8])> {
        let (above, name) = self.in_parent(path).ok()?;
        Some((above.ino(), name))
    }

    /// Returns metadata; if `follow`, of the target of a symbolic link in the last component. The number of a link
    /// means the link.
    pub fn attributes(&self, follow: bool) -> extant::Result<Metadata> {
        match &self.node {
            Some(node) => node.metadata(),
            None if follow => self.dir.metadata(os(&self.path)),
            None => self.dir.symlink_metadata(os(&self.path)),
        }
    }

    /// Returns the target of a symbolic link.
    pub fn read_link(&self) -> extant::Result<Vec<u8>> {
        match &self.node {
            Some(node) => node.read_link().map(Vec::from),
            None => self.dir.read_link(os(&self.path)).map(bytes),
        }
    }

    /// Opens a regular file.
    pub fn open(&self, options: &OpenOptions) -> extant::Result<File> {
        match &self.node {
            Some(node) => self.volume.open_ino(node.ino(), options),
            None => self.dir.open_file_with(os(&self.path), options),
        }
    }

    /// Opens a directory.
    pub fn open_dir(&self) -> extant::Result<Dir> {
        match &self.node {
            Some(node) => self.volume.open_dir_ino(node.ino()),
            None => self.dir.open_dir(os(&self.path)),
        }
    }

    /// Changes attributes; if `follow`, of the target of a symbolic link in the last component.
    pub fn set_attributes(&self, set: &SetAttributes, follow: bool) -> extant::Result<()> {
        match &self.node {
            Some(node) => node.set_attributes(&Credentials::root(), set).map(drop),
            None if follow => self.dir.set_attributes(os(&self.path), set),
            None => self.dir.set_symlink_attributes(os(&self.path), set),
        }
    }

    /// Lists the names of the extended attributes, without following links.
    pub fn list_xattrs(&self) -> extant::Result<Vec<Vec<u8>>> {
        match &self.node {
            Some(node) => node.list_xattrs(&Credentials::root()),
            None => {
                let names = self.dir.list_xattrs(os(&self.path))?.into_iter();
                Ok(names.map(bytes).collect())
            }
        }
    }

    /// Returns the value of an extended attribute.
    pub fn xattr(&self, name: &[u8]) -> extant::Result<Vec<u8>> {
        match &self.node {
            Some(node) => node.get_xattr(&Credentials::root(), name),
            None => self.dir.get_xattr(os(&self.path), os(name)),
        }
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&self, name: &[u8], value: &[u8]) -> extant::Result<()> {
        match &self.node {
            Some(node) => node.set_xattr(&Credentials::root(), name, value, SetXattr::Any),
            None => self
                .dir
                .set_xattr(os(&self.path), os(name), value, SetXattr::Any),
        }
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, name: &[u8]) -> extant::Result<()> {
        match &self.node {
            Some(node) => node.remove_xattr(&Credentials::root(), name),
            None => self.dir.remove_xattr(os(&self.path), os(name)),
        }
    }
}
