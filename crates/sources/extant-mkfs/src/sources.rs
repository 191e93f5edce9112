//! Several sources as one: each a layer over those before it.

use super::archive_content::{self, ArchiveReader};
use super::data::{Content, ContentReader};
use super::error::{MkfsError, Result};
use super::files::{Places, TreeContent, TreeReader, TreeRoot};
use super::layers::Layers;
use super::options::MkfsOptions;
use super::progress::{Monitor, Phase};
use super::reader_tree::{self, OtherReader};
use super::scan::{self, TreeSource};
use super::source_attributes::AttributeRules;
use super::tree::{Body, Draft, Tree, XattrPool};
use ext4_format::timestamp::Timestamp;
use extant_sources::parts::Store;
use extant_sources::{ArchiveInput, DeviceTable, ReadTree};

/// Contents of a new file system. If there are several, each is a layer over those before it, with the white-outs
/// of OCI images; in a single source such names are ordinary names.
///
/// ```
/// use extant_mkfs::{Source, ArchiveInput, TreeSource};
/// let base = Source::Archive(ArchiveInput::File("base.tar.zst".into()));
/// let ours = Source::Tree(TreeSource::new("overlay/"));
/// # drop([base, ours]);
/// ```
pub enum Source {
    /// A directory tree.
    Tree(TreeSource),
    /// An archive, tar or cpio, or a SquashFS image.
    Archive(ArchiveInput),
    /// A tree that something else reads, such as another file system.
    Other(Box<dyn ReadTree>),
    /// Changes to the files of earlier sources, and devices. A table is not a layer.
    Table(DeviceTable),
}

impl From<Source> for Vec<Source> {
    fn from(one: Source) -> Self {
        vec![one]
    }
}

/// Reads the names and attributes of all sources.
pub(super) fn scan(
    mut sources: Vec<Source>,
    options: &MkfsOptions,
    monitor: &Monitor,
    time: i64,
) -> Result<(Draft, Box<dyn Content>)> {
    if let [Source::Tree(tree)] = &sources[..] {
        // With a single source no layer is applied: the tree is taken as it was read.
        let (draft, root) = scan::scan(tree, options, monitor, XattrPool::default())?;
        let root = TreeRoot::new(root, monitor.clone());
        return Ok((draft, Box::new(TreeContent::new(root))));
    }
    let mut pool = XattrPool::default();
    let is_layer = |s: &&Source| !matches!(s, Source::Table(_));
    let several = sources.iter().filter(is_layer).count() > 1;
    let mut layers = Layers::new(several, Timestamp::new(time, 0));
    let mut content = LayeredContent::default();
    for source in sources.drain(..) {
        match source {
            Source::Tree(tree) => {
                let (draft, root) = scan::scan(&tree, options, monitor, pool)?;
                let number = content.trees.len();
                let mut files = TreeFiles::of(TreeRoot::new(root, monitor.clone()), &draft);
                let Draft {
                    inodes,
                    dirs,
                    xattrs,
                } = draft;
                pool = xattrs;
                layers.enter_tree(inodes, dirs, |dir, name| files.add(number, dir, name))?;
                content.trees.push(KeptSource::Tree(files));
            }
            Source::Other(tree) => {
                let attribute_rules = AttributeRules {
                    options,
                    pool: &pool,
                    monitor,
                };
                content.enter(tree, &mut layers, &attribute_rules)?;
            }
            Source::Table(table) => layers.apply(&table, options, &pool, monitor)?,
            Source::Archive(input) => {
                let attribute_rules = AttributeRules {
                    options,
                    pool: &pool,
                    monitor,
                };
                let tree = archive_content::scan(
                    input,
                    &mut content.store,
                    &mut layers,
                    &attribute_rules,
                )?;
                if let Some(tree) = tree {
                    content.enter(Box::new(tree), &mut layers, &attribute_rules)?;
                }
            }
        }
        layers.next_layer();
    }
    Ok((layers.finish(pool), Box::new(content)))
}

/// Marks the origin of a file that is read from a tree: then the number of the tree, and of the file there.
const TREE: u64 = 1 << 63;

/// Returns the number of a tree, if it is not too large for an origin.
fn tree_number(tree: usize) -> Result<u32> {
    let number = u32::try_from(tree).ok().filter(|t| t >> 31 == 0);
    number.ok_or_else(|| MkfsError::Options("more than 2^31 sources".into()))
}

/// Returns the origin of a file.
fn origin(tree: u32, file: u32) -> u64 {
    TREE | u64::from(tree) << 32 | u64::from(file)
}

/// Splits an origin into the index of a tree and the index of a file.
fn in_tree(origin: u64) -> Option<(usize, usize)> {
    let of_tree = origin & TREE != 0;
    of_tree.then_some(((origin & !TREE) as usize >> 32, origin as u32 as usize))
}

/// The files of one tree among several sources. A file's origin does not follow from its place in the image:
/// directories above it may have been removed, and its only name may be a link in a later archive.
struct TreeFiles {
    root: TreeRoot,
    /// The parent of each directory, and its name there.
    dirs: Vec<(u32, Box<[u8]>)>,
    /// The directory and the name of each file.
    files: Vec<(u32, Box<[u8]>)>,
}

impl TreeFiles {
    fn of(root: TreeRoot, draft: &Draft) -> Self {
        let mut dirs: Vec<(u32, Box<[u8]>)> = vec![(0, Box::default()); draft.dirs.len()];
        for (d, dir) in (0..).zip(&draft.dirs) {
            for (name, inode) in &dir.names {
                if let Body::Directory(below) = draft.inodes[*inode as usize].body {
                    dirs[below as usize] = (d, name.clone()); // numbers out of the draft
                }
            }
        }
        Self {
            root,
            dirs,
            files: Vec::new(),
        }
    }

    /// Notes a file; returns its origin.
    fn add(&mut self, tree: usize, dir: u32, name: &[u8]) -> Result<u64> {
        let many = || MkfsError::Options("more than 2^32 files in a source".into());
        let file = u32::try_from(self.files.len()).map_err(|_| many())?;
        self.files.push((dir, name.into()));
        Ok(origin(tree_number(tree)?, file))
    }
}

/// A source whose files are read where they are.
enum KeptSource {
    Tree(TreeFiles),
    Other(Box<dyn ReadTree>),
}

/// The data of all sources' files.
#[derive(Default)]
struct LayeredContent {
    store: Store,
    trees: Vec<KeptSource>,
}

impl LayeredContent {
    /// Enters the files of another tree, and keeps the tree.
    fn enter(
        &mut self,
        tree: Box<dyn ReadTree>,
        layers: &mut Layers,
        attribute_rules: &AttributeRules<'_>,
    ) -> Result<()> {
        attribute_rules.monitor.phase(Phase::Scan, 0);
        let number = tree_number(self.trees.len())?;
        reader_tree::scan(&*tree, layers, attribute_rules, |file| origin(number, file))?;
        self.trees.push(KeptSource::Other(tree));
        Ok(())
    }
}

impl Content for LayeredContent {
    fn reader<'a>(&'a self, tree: &'a Tree) -> Box<dyn ContentReader + 'a> {
        let of_tree = |kept: &'a KeptSource| -> Box<dyn ContentReader + 'a> {
            match kept {
                KeptSource::Tree(files) => {
                    let places = OfLayer { tree, files };
                    Box::new(TreeReader::new(&files.root, tree, places))
                }
                KeptSource::Other(source) => Box::new(OtherReader {
                    source: &**source,
                    tree,
                    number: |origin| origin as u32, // the low bits
                }),
            }
        };
        Box::new(LayeredReader {
            tree,
            archives: ArchiveReader::new(&self.store, tree),
            trees: self.trees.iter().map(of_tree).collect(),
        })
    }
}

/// Places of files are in their origins.
struct OfLayer<'a> {
    tree: &'a Tree,
    files: &'a TreeFiles,
}

impl Places for OfLayer<'_> {
    fn place(&self, inode: u32) -> (u32, &[u8]) {
        let found = match self.tree.inodes[inode as usize].body {
            Body::File { origin, .. } => in_tree(origin).and_then(|(_, f)| self.files.files.get(f)),
            _ => None,
        };
        // The number belongs to this tree.
        found.map_or((0, b"".as_slice()), |(dir, name)| (*dir, name))
    }

    fn path(&self, mut dir: u32) -> Vec<u8> {
        let mut parts: Vec<&[u8]> = Vec::new();
        while dir != 0 {
            let (outer, name) = &self.files.dirs[dir as usize]; // as many as the draft had
            parts.push(name);
            dir = *outer;
        }
        parts.reverse();
        parts.join(&b'/')
    }
}

struct LayeredReader<'a> {
    tree: &'a Tree,
    archives: ArchiveReader<'a>,
    trees: Vec<Box<dyn ContentReader + 'a>>,
}

impl ContentReader for LayeredReader<'_> {
    fn read(&mut self, inode: u32, offset: u64, buf: &mut [u8]) -> Result<()> {
        let reader = match self.tree.inodes[inode as usize].body {
            Body::File { origin, .. } => in_tree(origin).and_then(|(t, _)| self.trees.get_mut(t)),
            _ => None,
        };
        match reader {
            Some(tree) => tree.read(inode, offset, buf),
            None => self.archives.read(inode, offset, buf),
        }
    }
}
