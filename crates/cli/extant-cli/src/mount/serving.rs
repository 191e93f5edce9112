//! Serving an image on a directory, until it is unmounted.

use crate::mount::confine::{self, HeldRules, Needs};
use crate::mount::keeper::{Keeper, KeeperOptions};
use crate::mount::lock_file::LockFile;
use anyhow::{Context, Result, bail, ensure};
use blockdev::{Access, BlockDevice, FileDevice};
use extant::unstable::Node;
use extant_cli_core::address::is_stream;
use extant_cli_core::format::show::ShowPath;
use extant_cli_core::image::advice::about_image;
use extant_cli_core::image::{identity, images, in_place, io_timeout, overlaid, store, streams};
use extant_cli_core::messages::advised::advised;
use extant_cli_core::mounts::server_exit::open_when_free;
use extant_terminal::progress::Progress;

use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use extant::scratch::{self, Changes};
use extant::{Credentials, Volume};
use extant_fuse::control::{Server, socket_of};
use extant_fuse::{Filesystem, MountOptions};
use fuse_server::{Connection, Handler, Session, Transport, Unmount, Unmounting};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Parses the options of all lists after `-o`.
pub fn mount_options(lists: &[String]) -> Result<MountOptions> {
    let mut options = MountOptions::default();
    let parse = |list: &String| options.parse(list);
    lists
        .iter()
        .try_for_each(parse)
        .map_err(|e| match e.to_string() {
            text if text.ends_with("not known") => advised(text, "see extant mount --help"),
            _ => e.into(),
        })?;
    Ok(options)
}

/// An image, its mount point and the options.
pub struct Serving<'a> {
    /// The image.
    pub image: PathBuf,
    /// The directory.
    pub dir: PathBuf,
    /// Options of `-o`.
    pub options: MountOptions,
    /// Transport of the requests.
    pub transport: Transport,
    /// Minimum number of threads that serve; 0: the number of CPUs.
    pub threads: usize,
    /// Changes go to an overlay.
    pub scratch: Option<Changes<'a>>,
    /// The lists after `-o` that `options` were read from.
    pub words: &'a [String],
    /// Whether the server confines itself.
    pub sandbox: bool,
    /// A file that exists as long as the image is mounted.
    pub lock_file: Option<&'a Path>,
}

/// An image that is mounted but not yet served.
pub struct Ready {
    session: Session,
    volume: Volume,
    control: Option<Server>,
    keeper: Arc<Keeper>,
    sandbox: bool,
    rules: Option<HeldRules>,
    dir: PathBuf,
    image: String,
    lock_file: Option<LockFile>,
}

/// The errors with which a kernel refuses to hold a block device for a mount.
const NODEV: i32 = rustix::io::Errno::NODEV.raw_os_error();
const INVAL: i32 = rustix::io::Errno::INVAL.raw_os_error();
const PERM: i32 = rustix::io::Errno::PERM.raw_os_error();

/// The permission that a directory must grant to create files, as bits of a mode.
const WRITE: u16 = 2;
const SEARCH: u16 = 1;

/// Largest block of a file system on a block device that the kernel holds for us.
const LARGEST_BLOCK: u32 = 4096;

impl Serving<'_> {
    /// Returns the options, adjusted to the image. A write-protected image is mounted read-only with a warning, or
    /// refused if the user asked for `rw`.
    fn allowed(&self) -> Result<MountOptions> {
        let mut options = self.options.clone();
        if options.read_only || self.scratch.is_some() {
            return Ok(options);
        }
        if let Some(why) = store::write_protection(&self.image)? {
            let image = self.image.shown();
            ensure!(
                !options.read_write,
                "{image}: {why}; it cannot be mounted with -o rw"
            );
            extant_terminal::output::warn(format_args!("{image}: {why}; mounted read-only"));
            options.read_only = true;
        }
        Ok(options)
    }

    /// Returns the block size with which the kernel is to hold the device, if the image is a block device and this
    /// process is root. For other users the kernel does not hold devices.
    fn block_size(&self, image: &Path) -> Option<u32> {
        let meta = image.metadata().ok()?;
        let root = rustix::process::geteuid().is_root();
        let is_held = root && self.scratch.is_none() && !overlaid::is_overlaid(image);
        if !is_held || !meta.file_type().is_block_device() {
            return None;
        }
        let mut bytes = [0; SUPERBLOCK_SIZE];
        let device = std::fs::File::open(image).ok()?;
        device.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET).ok()?;
        let raw = RawSuperblock::parse(&bytes).ok()?;
        let size = raw.block_size()?;
        (size <= LARGEST_BLOCK).then_some(size)
    }

    /// Returns the image's device, or the overlay over it.
    fn device(&self, allowed: &MountOptions, held: bool) -> Result<Arc<dyn BlockDevice>> {
        let failed = |source| extant::Error::Open {
            context: format!("open {}", self.image.shown()),
            source,
        };
        let access = if allowed.read_only {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        };
        if !store::is_plain(&self.image) {
            return Ok(match self.scratch {
                Some(changes) => {
                    let base = store::open(&self.image, Access::ReadOnly)?;
                    self.named(scratch::device_over(
                        base,
                        store::file(&self.image),
                        changes,
                    ))?
                }
                None => store::open_unread(&self.image, access)?,
            });
        }
        let device: extant::Result<Arc<dyn BlockDevice>> = match self.scratch {
            Some(changes) => scratch::device(&self.image, changes),
            None if held && !allowed.read_only => {
                open_when_free(&self.image, || FileDevice::open_held(&self.image))
                    .map(|d| Arc::new(d) as _)
                    .map_err(failed)
            }
            None => open_when_free(&self.image, || FileDevice::open(&self.image, access))
                .map(|d| Arc::new(d) as _)
                .map_err(failed),
        };
        self.named(device)
    }

    fn named<T>(&self, done: extant::Result<T>) -> Result<T> {
        done.map_err(images::plain)
            .with_context(|| self.image.shown())
            .map_err(|e| about_image(&self.image, e))
    }

    fn open(&self, allowed: &MountOptions, device: Arc<dyn BlockDevice>) -> Result<Volume> {
        let options = images::telling(allowed.open_options(), &self.image);
        let volume = self.named(options.open_device(device))?;
        if !allowed.read_only
            && let Some(why) = volume.read_only()
        {
            bail!("{}: {why}; mount it with -o ro", self.image.shown());
        }
        if volume.orphans_left() > 0 {
            extant_terminal::output::note(format_args!(
                "{}: removed files hold space that is freed when it is mounted for writing: {}",
                self.image.shown(),
                volume.orphans_left()
            ));
        }
        Ok(volume)
    }

    /// Returns the absolute path of the directory.
    fn directory(&self) -> Result<PathBuf> {
        let dir = self
            .dir
            .canonicalize()
            .with_context(|| self.dir.shown())
            .map_err(|e| match self.dir.symlink_metadata() {
                Err(_) => advised(
                    extant_terminal::output::one_line(&e),
                    format_args!("mkdir -p {} makes a place for it", self.dir.shown()),
                ),
                Ok(_) => e,
            })?;
        ensure!(
            dir.is_dir(),
            "{}: not a directory: first the image, then the directory to mount it on",
            self.dir.shown()
        );
        Ok(dir)
    }

    /// Mounts in this process; [`crate::mount::keeper`] calls this for the server.
    pub fn mount_here(&self, how: KeeperOptions) -> std::io::Result<Connection> {
        let dir = self.directory().map_err(std::io::Error::other)?;
        let mut options = self.options.clone();
        options.read_only = how.read_only;
        let kernel = fuse_server::MountOptions {
            block_device: how.block_device,
            // The server gave its absolute path.
            ..options.for_kernel(&self.image.display().to_string())
        };
        fuse_server::mount(dir, &kernel)
    }

    /// Opens the image and mounts it. An image that cannot be mounted is closed again.
    pub fn start(&self) -> Result<Ready> {
        streams::no_image(&self.image)?;
        if let Some(Changes::KeptIn(file)) = self.scratch {
            ensure!(
                !is_stream(file),
                "--keep -: changes are kept in a file: name one"
            );
        }
        let dir = self.directory()?;
        // Checks that the image exists, with the same error as in all commands.
        identity::identity(&self.image)?;
        let image = store::canonical(&self.image).with_context(|| self.image.shown())?;
        let name = image.display().to_string();
        let options = self.allowed()?;
        if !options.read_only && self.scratch.is_none() {
            // The kernel would hold the device exclusively.
            in_place::take_back(&image)?;
        }
        let keeper = Arc::new(Keeper::start(&image, &dir, self.words)?);
        let how = |block_device| KeeperOptions {
            read_only: options.read_only,
            block_device,
        };
        // Mount first, because from then on the kernel holds the device exclusively.
        let held = self.block_size(&image).and_then(|block_size| {
            match keeper.mount(&dir, how(Some(block_size))) {
                Ok(connection) => Some(Ok(connection)),
                // The kernel does not support such mounts, or not for this device.
                Err(e) if matches!(e.raw_os_error(), Some(NODEV | INVAL | PERM)) => None,
                Err(e) => Some(Err(e)),
            }
        });
        if self.sandbox {
            io_timeout::will_be_confined();
        }
        let held = held.transpose().with_context(|| name.clone())?;
        let device = self.device(&options, held.is_some())?;
        let lock_file = self.lock_file.map(LockFile::make).transpose()?;
        let confined = self.sandbox.then(|| {
            let lock_dir = self.lock_file.and_then(Path::parent);
            confine::paths(&extant_fuse::control::make_directory(), lock_dir)
        });
        let rules = confined.transpose()?;
        // Replaying a long journal or many orphans may take long.
        let progress = Progress::wait(&format!("{}: opening", self.image.shown()));
        let volume = self.open(&options, device);
        drop(progress);
        let volume = volume?;
        if !options.read_only {
            say_whose_root(&volume, &self.image)?;
        }
        let connect = || match held {
            Some(connection) => Ok(connection),
            None => keeper.mount(&dir, how(None)),
        };
        let mounted = connect()
            .map_err(|e| advised(e, "extant doctor says what mounting needs here"))
            .with_context(|| dir.shown())
            .and_then(|connection| self.serve_on(connection, &dir, &name, &volume, &options));
        match mounted {
            Ok((session, control)) => Ok(Ready {
                session,
                volume,
                control,
                keeper,
                sandbox: self.sandbox,
                rules,
                dir,
                image: name,
                lock_file,
            }),
            Err(error) => {
                // The first error is the one to report.
                let _ = volume.close();
                Err(error)
            }
        }
    }

    fn serve_on(
        &self,
        connection: Connection,
        dir: &Path,
        image: &str,
        volume: &Volume,
        options: &MountOptions,
    ) -> Result<(Session, Option<Server>)> {
        let on = || dir.shown();
        let fs = Filesystem::new(volume.clone(), image, options).with_context(on)?;
        let fs = Arc::new(fs);
        let handler: Arc<dyn Handler> = Arc::clone(&fs) as _;
        let session = Session::new(connection, handler, self.transport, self.threads);
        let session = session.with_context(on)?;
        fs.set_transport(match session.transport() {
            Transport::Uring => "uring",
            _ => "classic",
        });
        let control = control(&fs, dir).with_context(on)?;
        Ok((session, control))
    }
}

/// Warns a user that may not create files in the image's root directory.
fn say_whose_root(volume: &Volume, image: &Path) -> Result<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let (uid, gid) = (user.as_raw(), group.as_raw());
    let groups: Vec<u32> = rustix::process::getgroups()
        .context("groups")?
        .into_iter()
        .map(rustix::fs::Gid::as_raw)
        .collect();
    let root = Node::root(volume)?;
    // Root may write regardless of the mode.
    let may = root.check_access(&Credentials::new(uid, gid, &groups), WRITE | SEARCH);
    if user.is_root() || may.is_ok() {
        return Ok(());
    }
    let owner = root.metadata()?.uid();
    let image = image.shown();
    extant_terminal::output::note(format_args!(
        "{image}: its / belongs to user {owner}, you are {uid}: to write there, unmount it and type extant chown \
         {uid}:{gid} {image}:/ (for all that is in it, chown -R), or be root in it with extant shell {image}"
    ));
    Ok(())
}

/// Listens for `status`, `sync` and `umount`. If that fails, reports the error, and the mount runs without a socket.
fn control(fs: &Filesystem, dir: &Path) -> Result<Option<Server>> {
    let mounted = fuse_server::mounted_at(dir).context("/proc/self/mountinfo")?;
    let Some(mount) = mounted else {
        return Ok(None);
    };
    let socket = socket_of(mount.device);
    match fs.listen(&socket) {
        Ok(server) => Ok(Some(server)),
        Err(error) => {
            extant_terminal::output::warn(format_args!(
                "{}: no status of this mount will be had: {error}",
                socket.shown()
            ));
            Ok(None)
        }
    }
}

impl Ready {
    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Serves until the image is unmounted, then closes the image, and notifies the clients that wait for the end.
    pub fn serve(self) -> Result<()> {
        let Self {
            session,
            volume,
            control,
            image,
            sandbox,
            rules,
            lock_file,
            ..
        } = self;
        let needs = Needs {
            own: control
                .as_ref()
                .map(Server::directory)
                .into_iter()
                .chain(lock_file.as_ref().map(LockFile::dir))
                .collect(),
            rings: session.transport() == Transport::Uring,
        };
        if sandbox && let Err(why) = confine::calls(&needs) {
            extant_terminal::output::warn(format_args!(
                "{image}: the server may do all that its user may: {why:#}"
            ));
        }
        let served = session.run();
        drop(rules);
        // The last writes do not wait forever for a server that is gone.
        io_timeout::bound();
        let closed = volume.close();
        let how = match (&served, &closed) {
            (_, Err(e)) => Err(e.to_string()),
            (Err(e), _) => Err(e.to_string()),
            _ => Ok(()),
        };
        if let Some(control) = control {
            control.end(how);
        }
        // The image is free once the lock file is gone.
        drop(lock_file);
        closed.with_context(|| format!("{image}: close"))?;
        served.with_context(|| format!("{image}: serving"))
    }

    /// Unmounts when the user asks to stop. A busy mount is unmounted as soon as it is idle.
    pub fn unmount_on_signal(&self) -> Result<()> {
        let (dir, keeper) = (self.dir.clone(), Arc::clone(&self.keeper));
        extant_terminal::interrupt::on_signal(move || {
            if keeper.unmount(Unmounting::Unused).is_err()
                && let Err(e) = keeper.unmount(Unmounting::Detached)
            {
                extant_terminal::output::complain(format_args!("{}: {e}", dir.shown()));
            }
        })
    }
}
