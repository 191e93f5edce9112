//! Serving an image on a directory, until it is unmounted.

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use extant::Volume;
use extant::scratch::{self, Changes};
use extant_fuse::control::{Server, socket_of};
use extant_fuse::{Filesystem, MountOptions};
use fuse_server::{Handler, Session, Transport};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How requests come from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TransportArg {
    /// io_uring where the kernel allows it, else /dev/fuse
    #[default]
    Auto,
    /// FUSE over io_uring, a queue for each processor (Linux 6.14, module parameter fuse.enable_uring)
    Uring,
    /// /dev/fuse
    Classic,
}

impl From<TransportArg> for Transport {
    fn from(arg: TransportArg) -> Self {
        match arg {
            TransportArg::Auto => Self::Auto,
            TransportArg::Uring => Self::Uring,
            TransportArg::Classic => Self::Classic,
        }
    }
}

/// What lists of options after `-o` say together.
pub fn mount_options(lists: &[String]) -> Result<MountOptions> {
    let mut options = MountOptions::default();
    lists.iter().try_for_each(|list| options.parse(list))?;
    Ok(options)
}

/// What is mounted where, and how.
pub struct Serving<'a> {
    /// The image.
    pub image: PathBuf,
    /// The directory.
    pub dir: PathBuf,
    /// Options of `-o`.
    pub options: MountOptions,
    /// How requests come.
    pub transport: TransportArg,
    /// Threads that serve, at least; 0: as many as there are processors.
    pub threads: usize,
    /// Changes go to an overlay.
    pub scratch: Option<Changes<'a>>,
}

/// An image that is mounted and waits to be served.
pub struct Ready {
    session: Session,
    volume: Volume,
    control: Option<Server>,
    dir: PathBuf,
    image: String,
}

impl Serving<'_> {
    fn open(&self) -> Result<Volume> {
        let options = crate::images::telling(self.options.open_options(), &self.image);
        let opened = match self.scratch {
            None => options.open(&self.image),
            Some(changes) => scratch::open(&self.image, changes, &options),
        };
        let volume = opened
            .map_err(crate::images::plain)
            .with_context(|| self.image.display().to_string())?;
        if !self.options.read_only
            && let Some(why) = volume.read_only()
        {
            bail!("{}: {why}; mount it with -o ro", self.image.display());
        }
        Ok(volume)
    }

    /// Opens the image and mounts it. An image that cannot be mounted is closed again.
    pub fn start(&self) -> Result<Ready> {
        let dir = self
            .dir
            .canonicalize()
            .with_context(|| self.dir.display().to_string())?;
        ensure!(dir.is_dir(), "{}: not a directory", self.dir.display());
        let image = self
            .image
            .canonicalize()
            .with_context(|| self.image.display().to_string())?;
        let name = image.display().to_string();
        let volume = self.open()?;
        match self.mount(&dir, &name, &volume) {
            Ok((session, control)) => Ok(Ready {
                session,
                volume,
                control,
                dir,
                image: name,
            }),
            Err(error) => {
                // The first error is the one to tell.
                let _ = volume.close();
                Err(error)
            }
        }
    }

    fn mount(&self, dir: &Path, image: &str, volume: &Volume) -> Result<(Session, Option<Server>)> {
        let on = || dir.display().to_string();
        let fs = Filesystem::new(volume.clone(), image, &self.options).with_context(on)?;
        let fs = Arc::new(fs);
        let kernel = self.options.for_kernel(image);
        let connection = fuse_server::mount(dir, &kernel).with_context(on)?;
        let handler: Arc<dyn Handler> = Arc::clone(&fs) as _;
        let session = Session::new(connection, handler, self.transport.into(), self.threads);
        let session = session.map_err(|e| unmounted(dir, e)).with_context(on)?;
        fs.set_transport(match session.transport() {
            Transport::Uring => "uring",
            _ => "classic",
        });
        let control = control(&fs, dir)
            .map_err(|e| unmounted(dir, e))
            .with_context(on)?;
        Ok((session, control))
    }
}

fn unmounted<E>(dir: &Path, error: E) -> E {
    // Whatever it says: the first error is the one to tell.
    let _ = fuse_server::detach(dir);
    error
}

/// Listens for `status`, `sync` and `umount`. Without a place for the socket the mount does without.
fn control(fs: &Filesystem, dir: &Path) -> Result<Option<Server>> {
    let mounted = fuse_server::mounted_at(dir).context("/proc/self/mountinfo")?;
    let Some(mount) = mounted else {
        return Ok(None);
    };
    let socket = socket_of(mount.device);
    match fs.listen(&socket) {
        Ok(server) => Ok(Some(server)),
        Err(error) => {
            crate::output::complain(format_args!(
                "{}: no status of this mount will be had: {error}",
                socket.display()
            ));
            Ok(None)
        }
    }
}

impl Ready {
    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Serves until it is unmounted, then closes the image, and tells those who wait for that.
    pub fn serve(self) -> Result<()> {
        let Self {
            session,
            volume,
            control,
            image,
            ..
        } = self;
        let served = session.run();
        let closed = volume.close();
        let how = match (&served, &closed) {
            (_, Err(e)) => Err(e.to_string()),
            (Err(e), _) => Err(e.to_string()),
            _ => Ok(()),
        };
        if let Some(control) = control {
            control.end(how);
        }
        closed.with_context(|| format!("{image}: close"))?;
        served.with_context(|| format!("{image}: serving"))
    }

    /// Unmounts when the user asks to stop; one that is in use goes when it is not any more.
    pub fn unmount_on_signal(&self) -> Result<()> {
        let dir = self.dir.clone();
        crate::interrupt::on_signal(move || {
            if fuse_server::unmount(&dir).is_err()
                && let Err(e) = fuse_server::detach(&dir)
            {
                crate::output::complain(format_args!("{}: {e}", dir.display()));
            }
        })
    }
}
