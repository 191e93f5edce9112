//! Quota files made, brought up to date and taken away.

use crate::error::{Error, refused};
use crate::image::Image;
use crate::journal::{free_blocks, own_inode, take_blocks, write_file};
use crate::options::TuneOptions;
use ext4_format::features::{Features, RoCompat};
use ext4_format::inode::{self, flags};
use ext4_format::quota::{QuotaFile, QuotaKind, QuotaSums};
use ext4_format::xattr::{self, Stored};
use ext4_format::{BlockNr, FormatError, InodeNr, Where};

/// The kinds of quota of the volume, with their features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kinds([bool; 3]);

impl Kinds {
    /// Returns the kinds of the volume.
    pub(crate) fn of(image: &Image<'_, '_>) -> Self {
        let has = image.geo.features.has_quota();
        Self(QuotaKind::ALL.map(|kind| has && kind.inode(&image.sb) != 0))
    }

    /// Returns the requested kinds: by features, then by the list of kinds.
    pub(crate) fn wanted(
        self,
        now: Features,
        wanted: &mut Features,
        options: &TuneOptions,
    ) -> Result<Self, Error> {
        let Self([mut user, mut group, mut project]) = self;
        if wanted.has_quota() && !now.has_quota() && options.quota.is_empty() {
            (user, group) = (true, true);
        }
        if wanted.has_project() != now.has_project() {
            project = wanted.has_project();
        }
        if now.has_quota() && !wanted.has_quota() {
            (user, group, project) = (false, false, false);
        }
        for word in options.quota.split(',').filter(|word| !word.is_empty()) {
            let (name, on) = match word.strip_prefix('^') {
                Some(name) => (name, false),
                None => (word, true),
            };
            match name {
                "usr" | "usrquota" => user = on,
                "grp" | "grpquota" => group = on,
                "prj" | "prjquota" => project = on,
                _ => return refused(format!("{word}: usrquota, grpquota or prjquota")),
            }
        }
        let kinds = Self([user, group, project]);
        wanted
            .ro_compat
            .set(RoCompat::QUOTA, kinds.0.contains(&true));
        if kinds.0[2] != self.0[2] {
            wanted.ro_compat.set(RoCompat::PROJECT, project);
        }
        Ok(kinds)
    }

    fn has(self, kind: QuotaKind) -> bool {
        let [user, group, project] = self.0;
        match kind {
            QuotaKind::User => user,
            QuotaKind::Group => group,
            QuotaKind::Project => project,
        }
    }
}

/// Checks that inodes have room for the requested features.
pub(crate) fn check(image: &Image<'_, '_>, wanted: Features) -> Result<(), Error> {
    let now = image.geo.features;
    if wanted.has_project() && !now.has_project() && image.geo.inode_size < 256 {
        return refused("project needs inodes of 256 bytes: see -I");
    }
    Ok(())
}

/// Takes the files of kinds away that are not wanted any more.
pub(crate) fn remove(image: &mut Image<'_, '_>, now: Kinds, wanted: Kinds) -> Result<(), Error> {
    for kind in QuotaKind::ALL {
        if !now.has(kind) || wanted.has(kind) {
            continue;
        }
        let ino = InodeNr(kind.inode(&image.sb));
        let blocks = free_blocks(image, ino)?;
        if ino.0 < image.geo.first_ino {
            let mut zeros = vec![0; image.geo.inode_size.into()];
            image.write_record(ino, &mut zeros)?;
        } else {
            image.give_inode(ino)?;
        }
        kind.set_inode(&mut image.sb, 0);
        let text = format!("its {blocks} blocks are freed");
        image.tell(format!("{} quota", kind.name()), text);
    }
    Ok(())
}

/// Makes the files of kinds that are new, and brings the others up to date.
pub(crate) fn follow(
    image: &mut Image<'_, '_>,
    now: Kinds,
    wanted: Kinds,
    options: &TuneOptions,
) -> Result<(), Error> {
    if wanted == Kinds([false; 3]) {
        return Ok(());
    }
    if wanted != now {
        // The quota file itself is not counted, so its inode number must be known first.
        for kind in QuotaKind::ALL {
            if wanted.has(kind) && !now.has(kind) {
                let ino = match kind {
                    QuotaKind::User => InodeNr(3),
                    QuotaKind::Group => InodeNr(4),
                    QuotaKind::Project => image.take_inode()?,
                };
                kind.set_inode(&mut image.sb, ino.0);
            }
        }
    }
    let sums = count(image)?;
    for kind in QuotaKind::ALL.into_iter().filter(|kind| wanted.has(*kind)) {
        if now.has(kind) {
            update(image, kind, &sums)?;
        } else {
            make(image, kind, &sums, options)?;
        }
    }
    image.renew()
}

fn count(image: &mut Image<'_, '_>) -> Result<QuotaSums, Error> {
    let mut sums = QuotaSums::default();
    for ino in image.used_inodes()? {
        let raw = image.read_record(ino)?;
        if blockdev::is_zero(&raw) {
            continue;
        }
        let core = inode::decode_verified(&raw, &image.geo, ino)?;
        if core.links > 0 {
            let values = values(image, &raw)?;
            sums.add(&image.sb, &image.geo, ino, &raw, &core, values);
        }
    }
    Ok(sums)
}

/// Returns the number of an inode's attributes whose values are in inodes.
fn values(image: &Image<'_, '_>, raw: &[u8]) -> Result<u64, Error> {
    let mut count = 0;
    if !image.geo.features.has_ea_inode() {
        return Ok(count);
    }
    let mut note = |_: u8, _: &[u8], value: Stored<'_>| {
        count += u64::from(matches!(value, Stored::Inode(_)));
        Ok(())
    };
    if let Some(area) = inode::xattr_area(raw, &image.geo).and_then(|area| raw.get(area)) {
        xattr::walk_inode_area(area, &mut note)?;
    }
    let block = inode::file_acl(raw, &image.geo);
    if block.0 != 0 {
        xattr::walk_block(&image.read(block)?, &mut note)?;
    }
    Ok(count)
}

fn make(
    image: &mut Image<'_, '_>,
    kind: QuotaKind,
    sums: &QuotaSums,
    options: &TuneOptions,
) -> Result<(), Error> {
    let mut file = QuotaFile::default();
    file.set_use(kind, sums);
    let bytes = file.to_bytes(kind);
    let blocks = bytes.len().div_ceil(image.block_size()) as u32; // a tree has no more
    let goal = image.geo.first_data_block;
    let taken = take_blocks(image, blocks, goal, "a quota file")?;
    let ino = InodeNr(kind.inode(&image.sb));
    let mut core = own_inode(bytes.len() as u64, options.now);
    core.flags = flags::IMMUTABLE;
    write_file(image, ino, &taken, core)?;
    let places: Vec<BlockNr> = taken
        .0
        .iter()
        .flat_map(|run| (run.physical..run.physical + u64::from(run.len)).map(BlockNr))
        .collect();
    write(image, &places, &bytes)?;
    let text = format!(
        "made as inode {ino}, with the usage of {} numbers",
        file.records.len()
    );
    image.tell(format!("{} quota", kind.name()), text);
    Ok(())
}

fn write(image: &Image<'_, '_>, places: &[BlockNr], bytes: &[u8]) -> Result<(), Error> {
    for (at, part) in places.iter().zip(bytes.chunks(image.block_size())) {
        let mut block = part.to_vec();
        block.resize(image.block_size(), 0);
        image.write(*at, &block)?;
    }
    Ok(())
}

/// Updates a file if directories have become shorter or longer; it gets no new records.
fn update(image: &mut Image<'_, '_>, kind: QuotaKind, sums: &QuotaSums) -> Result<(), Error> {
    let ino = InodeNr(kind.inode(&image.sb));
    let raw = image.read_record(ino)?;
    let core = inode::decode_verified(&raw, &image.geo, ino)?;
    let map = image.mapping(core.flags, &raw)?;
    let places: Vec<(u32, BlockNr)> = map.places().collect();
    let hole = || FormatError::corrupt("a hole in a quota file", Where::Inode(ino));
    let find = |logical: u32| {
        let found = places.binary_search_by_key(&logical, |place| place.0);
        found.ok().and_then(|i| places.get(i)).map(|place| place.1)
    };
    let file = QuotaFile::read_from(kind, core.size, image.block_size(), |logical| {
        let at = find(logical).ok_or_else(hole)?;
        image.read(at).map_err(|_| hole())
    });
    let mut file = file?;
    if file.set_use(kind, sums).is_empty() {
        return Ok(());
    }
    let bytes = file.to_bytes(kind);
    let blocks = bytes.len().div_ceil(image.block_size()) as u32;
    let known: Option<Vec<BlockNr>> = (0..blocks).map(find).collect();
    let Some(known) = known else {
        return refused("a quota file needs more blocks: extant repair brings it up to date first");
    };
    write(image, &known, &bytes)
}
