//! Addresses of images of a Ceph cluster: `rbd:POOL/IMAGE`, `rbd:POOL/NAMESPACE/IMAGE`, each with `@SNAPSHOT` and fields behind `?`.

use crate::address::size;
use crate::claim::BeforeClaim;
use crate::errors::wrong;
use crate::requests::io_timeout;
use std::io;
use std::time::Duration;

/// User of a cluster unless the address or the environment names one.
const USER: &str = "admin";
/// Time to wait for a cluster unless the address states one.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time to wait, in seconds: the program `extant` waits 600 seconds.
const MOST_SECONDS: u64 = 540;

/// An image of a Ceph cluster, by its address.
#[derive(Debug)]
pub struct RbdAddress {
    /// The address as it was written.
    pub text: String,
    /// Pool of the image.
    pub pool: String,
    /// Namespace of the pool; empty for the default one.
    pub namespace: String,
    /// Name of the image.
    pub image: String,
    /// Snapshot to open.
    pub snapshot: Option<String>,
    /// User of the cluster, without `client.`.
    pub user: String,
    /// File of settings instead of the system's.
    pub conf: Option<String>,
    /// Size of an image to make if it does not exist, or to make it longer.
    pub size: Option<u64>,
    /// Time that the cluster has to answer.
    pub timeout: Duration,
    /// Called before the image is locked for writing.
    pub before_claim: BeforeClaim,
}

impl RbdAddress {
    /// Returns whether an address is of this kind.
    pub fn is_address(text: &str) -> bool {
        text.starts_with("rbd:")
    }

    /// Parses an address.
    ///
    /// ```
    /// let address = extant_remote::RbdAddress::parse("rbd:pool/disk@monday?id=backup&timeout=10")?;
    /// assert_eq!((address.image.as_str(), address.snapshot.as_deref()), ("disk", Some("monday")));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// The address has no pool or image, or an unknown field.
    pub fn parse(text: &str) -> io::Result<Self> {
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        let place = place.strip_prefix("rbd:").unwrap_or(place);
        let (names, snapshot) = match place.split_once('@') {
            Some((names, snapshot)) => (names, Some(snapshot.to_owned())),
            None => (place, None),
        };
        let parts: Vec<&str> = names.split('/').collect();
        let (pool, namespace, image) = match parts.as_slice() {
            [pool, image] => (*pool, "", *image),
            [pool, namespace, image] if !namespace.is_empty() => (*pool, *namespace, *image),
            _ => ("", "", ""),
        };
        if pool.is_empty() || image.is_empty() || snapshot.as_deref() == Some("") {
            return Err(wrong(
                text,
                "not an image of a pool (try rbd:POOL/IMAGE or rbd:POOL/IMAGE@SNAPSHOT)",
            ));
        }
        let arguments = std::env::var("CEPH_ARGS").unwrap_or_default();
        let mut address = Self {
            text: text.to_owned(),
            pool: pool.to_owned(),
            namespace: namespace.to_owned(),
            image: image.to_owned(),
            snapshot,
            user: user(&arguments).unwrap_or(USER).to_owned(),
            conf: None,
            size: None,
            timeout: TIMEOUT,
            before_claim: BeforeClaim::default(),
        };
        for field in query.split('&').filter(|field| !field.is_empty()) {
            address.set(field)?;
        }
        // The user's time replaces that of the address, as for NBD.
        if let Some(limit) = io_timeout()? {
            address.timeout = limit.min(Duration::from_secs(MOST_SECONDS));
        }
        Ok(address)
    }

    fn set(&mut self, field: &str) -> io::Result<()> {
        match field.split_once('=').unwrap_or((field, "")) {
            ("id", user) if !user.is_empty() => self.user = user.to_owned(),
            ("conf", path) if !path.is_empty() => self.conf = Some(path.to_owned()),
            ("size", value) => self.size = Some(size(&self.text, value)?),
            ("timeout", value) => {
                let seconds = value
                    .parse()
                    .ok()
                    .filter(|s| (1..=MOST_SECONDS).contains(s));
                let seconds = seconds.ok_or_else(|| {
                    let why = format_args!(
                        "'{value}' is not a number of seconds from 1 to {MOST_SECONDS}"
                    );
                    wrong(&self.text, why)
                })?;
                self.timeout = Duration::from_secs(seconds);
            }
            _ => {
                let why = format_args!("unknown field '{field}' after '?' (try id=NAME)");
                return Err(wrong(&self.text, why));
            }
        }
        Ok(())
    }
}

/// Returns the user that the options in `CEPH_ARGS` name. librados takes the other options from there, but not this one.
fn user(arguments: &str) -> Option<&str> {
    let mut words = arguments.split_whitespace();
    while let Some(word) = words.next() {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (word, None),
        };
        match option {
            "--id" | "--user" => return value.or_else(|| words.next()),
            "--name" | "-n" => return value.or_else(|| words.next())?.strip_prefix("client."),
            _ => {}
        }
    }
    None
}

#[test]
fn addresses_of_images_in_pools() {
    let parsed = |text| {
        let a = RbdAddress::parse(text).unwrap();
        (a.pool, a.namespace, a.image, a.snapshot)
    };
    let is = |text, pool: &str, namespace: &str, image: &str, snapshot: Option<&str>| {
        let snapshot = snapshot.map(str::to_owned);
        let names = [pool, namespace, image].map(str::to_owned);
        assert_eq!(
            parsed(text),
            (
                names[0].clone(),
                names[1].clone(),
                names[2].clone(),
                snapshot
            )
        );
    };
    is("rbd:p/i", "p", "", "i", None);
    is("rbd:p/n/i@s?id=x", "p", "n", "i", Some("s"));
    let address = RbdAddress::parse("rbd:p/i?id=x&conf=/etc/c.conf&size=2G&timeout=5").unwrap();
    assert_eq!(
        (address.user.as_str(), address.conf.as_deref()),
        ("x", Some("/etc/c.conf"))
    );
    assert_eq!(
        (address.size, address.timeout),
        (Some(2 << 30), Duration::from_secs(5))
    );
    for (text, why) in [
        ("rbd:p", "not an image of a pool"),
        ("rbd:/i", "not an image of a pool"),
        ("rbd:p/i@", "not an image of a pool"),
        ("rbd:p//i", "not an image of a pool"),
        ("rbd:p/i?key=AQ", "unknown field 'key=AQ'"),
        ("rbd:p/i?timeout=0", "'0' is not a number of seconds"),
        ("rbd:p/i?size=x", "'x' is not a size"),
    ] {
        let said = RbdAddress::parse(text).unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn the_user_of_the_environment_is_known() {
    assert_eq!(user("--id backup"), Some("backup"));
    assert_eq!(user("-c /x --name=client.a"), Some("a"));
    assert_eq!(user("--keyring /x"), None);
    assert_eq!(user("--id"), None);
}
