//! The calls of librados and librbd, which are loaded at run time.
//!
//! A build has no dependency on Ceph: the libraries are loaded when an address asks for them, and stay loaded. This module has the C
//! calls only. What makes its safe functions sound:
//!
//! - The types of the functions are those of librados.h and librbd.h, whose sonames (`librados.so.2`, `librbd.so.1`) stand for them.
//! - Both libraries may be called from any thread. A handle is closed once, by `drop`, and an image keeps its pool and cluster.
//! - The memory of a request belongs to [`Request`] until librbd completes it, also if the caller has stopped waiting.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

type Handle = *mut c_void;
type Callback = unsafe extern "C" fn(Handle, *mut c_void);
type EachExtent = unsafe extern "C" fn(u64, usize, c_int, *mut c_void) -> c_int;

/// A client that has an image open.
#[repr(C)]
struct Watcher {
    address: *mut c_char,
    id: i64,
    cookie: u64,
}

macro_rules! functions {
    ($($library:literal: $($name:ident($($argument:ty),*) $(-> $result:ty)?;)*)*) => {
        struct Functions {
            $($($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
        }

        impl Functions {
            fn load() -> Result<Self, String> {
                // The libraries are looked up before their functions, because a missing library has a separate message.
                $(library($library)?;)*
                Ok(Self {
                    $($($name: {
                        let found = symbol($library, concat!(stringify!($name), "\0"))?;
                        // SAFETY: the function has this type in the header of the library.
                        unsafe { std::mem::transmute::<Handle, unsafe extern "C" fn($($argument),*) $(-> $result)?>(found) }
                    },)*)*
                })
            }
        }
    };
}

functions! {
    "librbd.so.1":
    rbd_create(Handle, *const c_char, u64, *mut c_int) -> c_int;
    rbd_open(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    rbd_open_read_only(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    rbd_close(Handle) -> c_int;
    rbd_get_size(Handle, *mut u64) -> c_int;
    rbd_get_features(Handle, *mut u64) -> c_int;
    rbd_resize(Handle, u64) -> c_int;
    rbd_snap_create(Handle, *const c_char) -> c_int;
    rbd_lock_acquire(Handle, c_int) -> c_int;
    rbd_lock_release(Handle) -> c_int;
    rbd_lock_break(Handle, c_int, *const c_char) -> c_int;
    rbd_lock_get_owners(Handle, *mut c_int, *mut *mut c_char, *mut usize) -> c_int;
    rbd_lock_get_owners_cleanup(*mut *mut c_char, usize);
    rbd_watchers_list(Handle, *mut Watcher, *mut usize) -> c_int;
    rbd_watchers_list_cleanup(*mut Watcher, usize);
    rbd_metadata_get(Handle, *const c_char, *mut c_char, *mut usize) -> c_int;
    rbd_metadata_set(Handle, *const c_char, *const c_char) -> c_int;
    rbd_diff_iterate2(Handle, *const c_char, u64, u64, u8, u8, EachExtent, *mut c_void) -> c_int;
    rbd_aio_create_completion(*mut c_void, Callback, *mut Handle) -> c_int;
    rbd_aio_get_return_value(Handle) -> isize;
    rbd_aio_release(Handle);
    rbd_aio_read(Handle, u64, usize, *mut c_char, Handle) -> c_int;
    rbd_aio_write(Handle, u64, usize, *const c_char, Handle) -> c_int;
    rbd_aio_write_zeroes(Handle, u64, usize, Handle, c_int, c_int) -> c_int;
    rbd_aio_discard(Handle, u64, u64, Handle) -> c_int;
    rbd_aio_flush(Handle, Handle) -> c_int;
    "librados.so.2":
    rados_create(*mut Handle, *const c_char) -> c_int;
    rados_conf_read_file(Handle, *const c_char) -> c_int;
    rados_conf_parse_env(Handle, *const c_char) -> c_int;
    rados_conf_set(Handle, *const c_char, *const c_char) -> c_int;
    rados_connect(Handle) -> c_int;
    rados_shutdown(Handle);
    rados_ioctx_create(Handle, *const c_char, *mut Handle) -> c_int;
    rados_ioctx_set_namespace(Handle, *const c_char);
    rados_ioctx_destroy(Handle);
}

/// Loads a library; it stays loaded.
fn library(name: &str) -> Result<Handle, String> {
    refuse_static(name, cfg!(target_feature = "crt-static"))?;
    let text = CString::new(name).map_err(|e| e.to_string())?;
    // SAFETY: the name ends with a zero. What runs at loading is the library that the system has under this name.
    let found = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !found.is_null() {
        return Ok(found);
    }
    // SAFETY: the text is of this thread, and is valid until its next call.
    let why = unsafe {
        let text = libc::dlerror();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    let (package, _) = name.split_once(".so.").unwrap_or((name, ""));
    let number = name.rsplit('.').next().unwrap_or_default();
    match why.filter(|why| !why.contains("No such file")) {
        Some(why) => Err(format!("{name} cannot be loaded: {why}")),
        None => Err(format!(
            "needs the library {name}, which is not installed: install the package {package}{number}"
        )),
    }
}

/// Fails in a static program: it has no dynamic linker, and musl's `dlopen` always fails there. A library would also bring the system's C
/// library along, beside the one in the program.
fn refuse_static(name: &str, is_static: bool) -> Result<(), String> {
    if !is_static {
        return Ok(());
    }
    Err(format!(
        "this extant-remote is a static program, which cannot load {name}: serve the image by 'qemu-nbd -f raw rbd:POOL/IMAGE' and use its NBD address, or use an extant-remote that is built for the system's C library"
    ))
}

#[test]
fn a_static_program_says_what_to_do() {
    assert_eq!(refuse_static("librbd.so.1", false), Ok(()));
    let said = refuse_static("librbd.so.1", true).unwrap_err();
    assert!(said.contains("qemu-nbd -f raw rbd:") && said.lines().count() == 1);
}

fn symbol(library_name: &str, name: &'static str) -> Result<Handle, String> {
    let loaded = library(library_name)?;
    let text = CStr::from_bytes_with_nul(name.as_bytes()).map_err(|e| e.to_string())?;
    // SAFETY: the library is loaded and the name ends with a zero.
    let found = unsafe { libc::dlsym(loaded, text.as_ptr()) };
    if found.is_null() {
        let name = name.trim_end_matches('\0');
        return Err(format!(
            "{library_name} has no function {name}: needs Ceph 16 or newer"
        ));
    }
    Ok(found)
}

fn functions() -> io::Result<&'static Functions> {
    static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
    let loaded = FUNCTIONS.get_or_init(Functions::load);
    loaded
        .as_ref()
        .map_err(|why| io::Error::new(io::ErrorKind::Unsupported, why.clone()))
}

/// Returns the result of a call: a negative one is the number of an error.
fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        return Err(io::Error::from_raw_os_error(result.saturating_neg()));
    }
    Ok(result)
}

fn text(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(io::Error::from)
}

/// Returns a pointer to a text that C may miss.
fn pointer(text: Option<&CString>) -> *const c_char {
    text.map_or(null(), |text| text.as_ptr())
}

/// Ends the process at once. The destructors of the libraries are skipped, because they would wait for their threads.
pub fn end_now(status: i32) -> ! {
    // SAFETY: the function takes any number.
    unsafe { libc::_exit(status) }
}

/// A connection to a cluster.
pub struct Cluster {
    handle: Handle,
    functions: &'static Functions,
}

impl Cluster {
    /// Connects as the user `id`, with the settings of the file `conf` (the system's usual files without it), of `CEPH_ARGS`, and of
    /// `settings`.
    pub fn connect(id: &str, conf: Option<&str>, settings: &[(&str, &str)]) -> io::Result<Self> {
        let functions = functions()?;
        let mut handle = null_mut();
        let id = text(id)?;
        // SAFETY: the texts end with a zero, and the library copies them.
        checked(unsafe { (functions.rados_create)(&raw mut handle, id.as_ptr()) })?;
        let cluster = Self { handle, functions };
        let file = conf.map(text).transpose()?;
        // SAFETY: as above; the handle is valid until it is dropped.
        let read = unsafe { (functions.rados_conf_read_file)(handle, pointer(file.as_ref())) };
        checked(read).map_err(|e| {
            let name = conf.unwrap_or("ceph.conf");
            io::Error::new(e.kind(), format!("{name} cannot be read: {e}"))
        })?;
        // SAFETY: as above.
        checked(unsafe { (functions.rados_conf_parse_env)(handle, null()) })?;
        for (key, value) in settings {
            let (key, value) = (text(key)?, text(value)?);
            // SAFETY: as above.
            checked(unsafe { (functions.rados_conf_set)(handle, key.as_ptr(), value.as_ptr()) })?;
        }
        // SAFETY: as above.
        checked(unsafe { (functions.rados_connect)(handle) })?;
        Ok(cluster)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: the pools that were opened are gone.
        unsafe { (self.functions.rados_shutdown)(self.handle) }
    }
}

/// A pool of a cluster, or a namespace of the pool.
pub struct Pool {
    handle: Handle,
    cluster: Cluster,
}

impl Pool {
    pub fn open(cluster: Cluster, name: &str, namespace: &str) -> io::Result<Self> {
        let (name, namespace) = (text(name)?, text(namespace)?);
        let functions = cluster.functions;
        let mut handle = null_mut();
        // SAFETY: the cluster is connected, and the texts end with a zero.
        checked(unsafe {
            (functions.rados_ioctx_create)(cluster.handle, name.as_ptr(), &raw mut handle)
        })?;
        // SAFETY: as above.
        unsafe { (functions.rados_ioctx_set_namespace)(handle, namespace.as_ptr()) };
        Ok(Self { handle, cluster })
    }

    /// Makes an image with the features that the configuration of the cluster has for new ones.
    pub fn create(&self, name: &str, size: u64) -> io::Result<()> {
        let name = text(name)?;
        let mut order = 0;
        let create = self.cluster.functions.rbd_create;
        // SAFETY: the pool is open, and the text ends with a zero.
        checked(unsafe { create(self.handle, name.as_ptr(), size, &raw mut order) }).map(drop)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the images that were opened are closed.
        unsafe { (self.cluster.functions.rados_ioctx_destroy)(self.handle) }
    }
}

/// An open image.
pub struct Image {
    handle: Handle,
    pool: Pool,
}

// SAFETY: librbd and librados may be called from any thread, and by several at once.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

/// Operation of a request.
pub enum Operation {
    /// Reads this number of bytes.
    Read(usize),
    Write(Vec<u8>),
    WriteZeroes(usize),
    Discard(u64),
    Flush,
}

/// A request that was sent. Dropping it leaves the request to librbd.
pub struct Request(Arc<Shared>);

struct Shared {
    functions: &'static Functions,
    /// Bytes of a read or write. Only librbd uses them until the result is there.
    bytes: UnsafeCell<Vec<u8>>,
    result: Mutex<Option<isize>>,
    done: Condvar,
}

// SAFETY: the bytes are used by librbd until the result is set, and after that by the only owner of the request.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Called by librbd when a request ends.
unsafe extern "C" fn completed(completion: Handle, argument: *mut c_void) {
    // SAFETY: the argument is what `submit` gave away, once.
    let shared = unsafe { Arc::from_raw(argument.cast_const().cast::<Shared>()) };
    // SAFETY: the completion is that of this request, and is not used again.
    let result = unsafe {
        let result = (shared.functions.rbd_aio_get_return_value)(completion);
        (shared.functions.rbd_aio_release)(completion);
        result
    };
    *shared.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    shared.done.notify_one();
}

impl Request {
    /// Waits until librbd completes the request. Returns the bytes of a read; `TimedOut` if the request takes longer than `limit`.
    pub fn wait(self, limit: Duration) -> io::Result<Vec<u8>> {
        let shared = self.0;
        let result = shared.result.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = shared
            .done
            .wait_timeout_while(result, limit, |r| r.is_none());
        let (result, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let result = result.ok_or(io::ErrorKind::TimedOut)?;
        if result < 0 {
            let number = i32::try_from(result.unsigned_abs()).unwrap_or(libc::EIO);
            return Err(io::Error::from_raw_os_error(number));
        }
        // SAFETY: the result is set, so that librbd is done with the bytes, and this is the only `Request`.
        let mut bytes = std::mem::take(unsafe { &mut *shared.bytes.get() });
        // A read returns the number of its bytes, others zero.
        bytes.truncate(result.unsigned_abs());
        Ok(bytes)
    }
}

impl Image {
    pub fn open(
        pool: Pool,
        name: &str,
        snapshot: Option<&str>,
        read_only: bool,
    ) -> Result<Self, (Pool, io::Error)> {
        let functions = pool.cluster.functions;
        let texts = text(name).and_then(|name| Ok((name, snapshot.map(text).transpose()?)));
        let (name, snapshot) = match texts {
            Ok(texts) => texts,
            Err(error) => return Err((pool, error)),
        };
        let open = if read_only {
            functions.rbd_open_read_only
        } else {
            functions.rbd_open
        };
        let mut handle = null_mut();
        // SAFETY: the pool is open, and the texts end with a zero.
        let opened = unsafe {
            let snapshot = pointer(snapshot.as_ref());
            open(pool.handle, name.as_ptr(), &raw mut handle, snapshot)
        };
        match checked(opened) {
            Ok(_) => Ok(Self { handle, pool }),
            Err(error) => Err((pool, error)),
        }
    }

    fn functions(&self) -> &'static Functions {
        self.pool.cluster.functions
    }

    pub fn size(&self) -> io::Result<u64> {
        let mut size = 0;
        // SAFETY: the image is open.
        checked(unsafe { (self.functions().rbd_get_size)(self.handle, &raw mut size) })?;
        Ok(size)
    }

    pub fn features(&self) -> io::Result<u64> {
        let mut features = 0;
        // SAFETY: the image is open.
        checked(unsafe { (self.functions().rbd_get_features)(self.handle, &raw mut features) })?;
        Ok(features)
    }

    pub fn resize(&self, size: u64) -> io::Result<()> {
        // SAFETY: the image is open.
        checked(unsafe { (self.functions().rbd_resize)(self.handle, size) }).map(drop)
    }

    pub fn make_snapshot(&self, name: &str) -> io::Result<()> {
        let name = text(name)?;
        // SAFETY: the image is open, and the text ends with a zero.
        checked(unsafe { (self.functions().rbd_snap_create)(self.handle, name.as_ptr()) }).map(drop)
    }

    /// Takes the exclusive lock, and keeps it when others ask for it. Breaks the lock of a client that is gone.
    pub fn lock(&self) -> io::Result<()> {
        // SAFETY: the image is open; 0 is the exclusive mode.
        checked(unsafe { (self.functions().rbd_lock_acquire)(self.handle, 0) }).map(drop)
    }

    pub fn unlock(&self) -> io::Result<()> {
        // SAFETY: the image is open.
        checked(unsafe { (self.functions().rbd_lock_release)(self.handle) }).map(drop)
    }

    /// Breaks the lock of another client, whose requests fail from now on.
    pub fn break_lock(&self, owner: &str) -> io::Result<()> {
        let owner = text(owner)?;
        // SAFETY: the image is open, and the text ends with a zero.
        checked(unsafe { (self.functions().rbd_lock_break)(self.handle, 0, owner.as_ptr()) })
            .map(drop)
    }

    /// Returns the address of the client that has the lock.
    pub fn lock_owner(&self) -> io::Result<Option<String>> {
        let (mut mode, mut owners, mut count) = (0, [null_mut::<c_char>(); 8], 8);
        let functions = self.functions();
        // SAFETY: there is room for `count` texts. They end with a zero, and are freed by the second call.
        unsafe {
            let pointer = owners.as_mut_ptr();
            let found = (functions.rbd_lock_get_owners)(
                self.handle,
                &raw mut mode,
                pointer,
                &raw mut count,
            );
            if found == -libc::ENOENT {
                return Ok(None);
            }
            checked(found)?;
            let first = owners[..count.min(8)].first();
            let first = first.map(|owner| CStr::from_ptr(*owner).to_string_lossy().into_owned());
            (functions.rbd_lock_get_owners_cleanup)(pointer, count.min(8));
            Ok(first)
        }
    }

    /// Returns whether a client of this address has the image open.
    pub fn is_watched_by(&self, address: &str) -> io::Result<bool> {
        let functions = self.functions();
        let mut count = 64;
        loop {
            let empty = || Watcher {
                address: null_mut(),
                id: 0,
                cookie: 0,
            };
            let mut watchers: Vec<Watcher> = std::iter::repeat_with(empty).take(count).collect();
            let room = count;
            // SAFETY: there is room for `count` clients. Their texts end with a zero, and are freed by the second call.
            unsafe {
                let pointer = watchers.as_mut_ptr();
                let found = (functions.rbd_watchers_list)(self.handle, pointer, &raw mut count);
                if found == -libc::ERANGE && count > room {
                    continue;
                }
                checked(found)?;
                let is_this =
                    |w: &Watcher| CStr::from_ptr(w.address).to_bytes() == address.as_bytes();
                let known = watchers.iter().take(count).any(is_this);
                (functions.rbd_watchers_list_cleanup)(pointer, count.min(room));
                return Ok(known);
            }
        }
    }

    /// Returns a value that the image keeps.
    pub fn metadata(&self, key: &str) -> io::Result<Option<String>> {
        let key = text(key)?;
        let (mut value, mut len) = ([0_u8; 4096], 4096);
        // SAFETY: there is room for `len` bytes.
        let found = unsafe {
            let value = value.as_mut_ptr().cast();
            (self.functions().rbd_metadata_get)(self.handle, key.as_ptr(), value, &raw mut len)
        };
        if found == -libc::ENOENT {
            return Ok(None);
        }
        checked(found)?;
        let text = value.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(Some(String::from_utf8_lossy(text).into_owned()))
    }

    pub fn set_metadata(&self, key: &str, value: &str) -> io::Result<()> {
        let (key, value) = (text(key)?, text(value)?);
        let set = self.functions().rbd_metadata_set;
        // SAFETY: the image is open, and the texts end with a zero.
        checked(unsafe { set(self.handle, key.as_ptr(), value.as_ptr()) }).map(drop)
    }

    /// Returns the extents of a range that may hold other bytes than zeros, as offset and length. They are whole objects.
    pub fn extents(&self, offset: u64, len: u64) -> io::Result<Vec<(u64, u64)>> {
        unsafe extern "C" fn each(at: u64, len: usize, exists: c_int, found: *mut c_void) -> c_int {
            if exists != 0 {
                // SAFETY: the argument is the vector below, which nothing else uses during the call.
                unsafe { (*found.cast::<Vec<(u64, u64)>>()).push((at, len as u64)) };
            }
            0
        }
        let mut found: Vec<(u64, u64)> = Vec::new();
        let iterate = self.functions().rbd_diff_iterate2;
        let into = (&raw mut found).cast();
        // SAFETY: the image is open, and the vector outlives the call.
        checked(unsafe { iterate(self.handle, null(), offset, len, 1, 1, each, into) })?;
        Ok(found)
    }

    /// Sends a request. The caller checks that the range is within the image.
    pub fn submit(&self, offset: u64, operation: Operation) -> io::Result<Request> {
        let functions = self.functions();
        let (mut bytes, operation) = match operation {
            Operation::Write(bytes) => (bytes, None),
            Operation::Read(len) => (vec![0; len], Some(Operation::Read(len))),
            other => (Vec::new(), Some(other)),
        };
        // Moving the vector does not move its bytes.
        let (data, len) = (bytes.as_mut_ptr().cast::<c_char>(), bytes.len());
        let shared = Arc::new(Shared {
            functions,
            bytes: UnsafeCell::new(bytes),
            result: Mutex::new(None),
            done: Condvar::new(),
        });
        let given = Arc::into_raw(Arc::clone(&shared));
        let mut completion = null_mut();
        // SAFETY: the image is open. The bytes live until the callback has taken `given`. If a call fails, there is no callback,
        // and `given` is taken back.
        unsafe {
            let argument = given.cast_mut().cast();
            let made =
                (functions.rbd_aio_create_completion)(argument, completed, &raw mut completion);
            if let Err(error) = checked(made) {
                drop(Arc::from_raw(given));
                return Err(error);
            }
            let image = self.handle;
            let sent = match operation {
                None => (functions.rbd_aio_write)(image, offset, len, data, completion),
                Some(Operation::Read(_)) => {
                    (functions.rbd_aio_read)(image, offset, len, data, completion)
                }
                Some(Operation::WriteZeroes(len)) => {
                    (functions.rbd_aio_write_zeroes)(image, offset, len, completion, 0, 0)
                }
                Some(Operation::Discard(len)) => {
                    (functions.rbd_aio_discard)(image, offset, len, completion)
                }
                _ => (functions.rbd_aio_flush)(image, completion),
            };
            if let Err(error) = checked(sent) {
                (functions.rbd_aio_release)(completion);
                drop(Arc::from_raw(given));
                return Err(error);
            }
        }
        Ok(Request(shared))
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: the image is open, and is not used again.
        unsafe { (self.functions().rbd_close)(self.handle) };
    }
}

#[test]
fn a_missing_library_is_named_with_its_package() {
    let said = library("libnosuch.so.1").err();
    assert_eq!(
        said.as_deref(),
        Some(
            "needs the library libnosuch.so.1, which is not installed: install the package libnosuch1"
        )
    );
    let said = symbol("libc.so.6", "no_such_function\0").err();
    assert_eq!(
        said.as_deref(),
        Some("libc.so.6 has no function no_such_function: needs Ceph 16 or newer")
    );
}
