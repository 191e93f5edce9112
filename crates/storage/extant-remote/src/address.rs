//! Addresses of images on web servers and object stores.

use crate::claim::BeforeClaim;
use crate::disk_cache::DiskCache;
use crate::errors::{failed, wrong};
use crate::objects::cipher::ImageKey;
use crate::requests::io_timeout;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureAccessKey, AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Default size of the cache of blocks, in bytes.
const CACHE: u64 = 64 << 20;
/// Default size of a cache on disk, in bytes.
const DISK_CACHE: u64 = 1 << 30;
/// Time that a store has to answer a request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// An image, by its address.
pub struct Address {
    /// The address as it was written.
    pub text: String,
    /// The store of its objects.
    pub store: Arc<dyn ObjectStore>,
    /// The object of an image that is one file, or the prefix of its objects.
    pub path: Path,
    /// Whether the image is one file, which is only read.
    pub is_file: bool,
    /// Snapshot to open.
    pub snapshot: Option<String>,
    /// Directory of the store's files, if the store is one.
    pub directory: Option<PathBuf>,
    /// Bytes of the cache in memory.
    pub cache: u64,
    /// File of the cache on disk.
    pub disk_cache: Option<PathBuf>,
    /// Bytes of a cache on disk that is made.
    pub disk_cache_size: u64,
    /// Size of an image to make if the address has no image yet.
    pub size: Option<u64>,
    /// Takes the image over from another writer.
    pub takeover: bool,
    /// Compresses the image from here on.
    pub compress: bool,
    /// Key of an encrypted image.
    pub key: Option<ImageKey>,
    /// Called before the image is claimed.
    pub before_claim: BeforeClaim,
}

/// Why an address without a size is refused where nothing is.
pub const NO_IMAGE: &str = "no image here: extant mkfs --size 1G makes one";

impl Address {
    /// Opens the cache on disk, if the address has one, for the image of this identity.
    pub fn open_disk_cache(&self, identity: &str) -> io::Result<Option<DiskCache>> {
        let open = |path: &PathBuf| DiskCache::open(path, self.disk_cache_size, identity);
        self.disk_cache.as_ref().map(open).transpose()
    }

    /// Returns the address without its fields.
    pub fn place(&self) -> &str {
        self.text.split('?').next().unwrap_or(&self.text)
    }

    /// Parses an address, and makes a client of its store. Sends no request.
    pub fn parse(text: &str) -> io::Result<Self> {
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        let mut address = Self {
            text: text.to_owned(),
            store: Arc::new(object_store::memory::InMemory::new()),
            path: Path::default(),
            is_file: false,
            snapshot: None,
            directory: None,
            cache: CACHE,
            disk_cache: None,
            disk_cache_size: DISK_CACHE,
            size: None,
            takeover: false,
            compress: false,
            key: None,
            before_claim: BeforeClaim::default(),
        };
        for field in query.split('&').filter(|field| !field.is_empty()) {
            match field.split_once('=').unwrap_or((field, "")) {
                ("cache", value) => address.cache = size(text, value)?,
                ("disk-cache", path) if !path.is_empty() => address.disk_cache = Some(path.into()),
                ("disk-cache-size", value) => address.disk_cache_size = size(text, value)?,
                ("size", value) => address.size = Some(size(text, value)?),
                ("takeover", "" | "1") => address.takeover = true,
                ("compress", "" | "1") => address.compress = true,
                ("key-file", path) if !path.is_empty() => {
                    let key = ImageKey::read(path.as_ref());
                    address.key = Some(key.map_err(|e| wrong(text, format_args!("{path}: {e}")))?);
                }
                _ => {
                    return Err(wrong(
                        text,
                        format_args!("unknown field '{field}' after '?' (try cache=256M)"),
                    ));
                }
            }
        }
        if let Some(dir) = place.strip_prefix("file+objects://") {
            let (dir, snapshot) = snapshot(dir);
            if !dir.starts_with('/') {
                return Err(wrong(text, "not a directory (try file+objects:///DIR)"));
            }
            if address.size.is_some() {
                std::fs::create_dir_all(dir).map_err(|e| wrong(text, e))?;
            } else if !std::path::Path::new(dir).exists() {
                return Err(wrong(text, NO_IMAGE));
            }
            let store = LocalFileSystem::new_with_prefix(dir).map_err(|e| failed(text, e))?;
            address.store = Arc::new(store);
            address.snapshot = snapshot;
            address.directory = Some(dir.into());
            return Ok(address);
        }
        address.is_file = place.starts_with("http://") || place.starts_with("https://");
        if address.is_file && (address.compress || address.key.is_some()) {
            return Err(wrong(
                text,
                "compress and key-file are for images of objects",
            ));
        }
        let (place, snapshot) = if address.is_file {
            (place, None)
        } else {
            snapshot(place)
        };
        address.snapshot = snapshot;
        let url = Url::parse(place).map_err(|e| wrong(text, e))?;
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| wrong(text, "no host or bucket"))?;
        let path = url.path().trim_start_matches('/');
        address.path = Path::from_url_path(path).map_err(|e| wrong(text, e))?;
        address.store = store(text, &url, host)?;
        if address.path.as_ref().is_empty() {
            return Err(wrong(text, "names no file: add its path"));
        }
        Ok(address)
    }
}

/// Splits the name of a snapshot off.
fn snapshot(place: &str) -> (&str, Option<String>) {
    match place.rsplit_once('@') {
        Some((place, name)) if !name.contains('/') => (place, Some(name.to_owned())),
        _ => (place, None),
    }
}

pub fn size(text: &str, value: &str) -> io::Result<u64> {
    let (digits, shift) = match value.strip_suffix(['K', 'M', 'G', 'T']) {
        Some(digits) => (
            digits,
            10 * (1 + "KMGT".find(&value[digits.len()..]).unwrap_or(0)),
        ),
        None => (value, 0),
    };
    let number = digits.parse::<u64>().ok();
    let bytes = number.and_then(|n| n.checked_mul(1 << shift));
    bytes.ok_or_else(|| {
        wrong(
            text,
            format_args!("'{value}' is not a size (try 64M or 2G)"),
        )
    })
}

/// Longest time for which a request is tried again: about 136 years.
const NEVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Returns how often a request is tried again, and how long an attempt may take.
fn retries() -> io::Result<(RetryConfig, Duration)> {
    let limit = io_timeout()?;
    let config = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        max_retries: if limit.is_some() { usize::MAX } else { 6 },
        retry_timeout: limit.unwrap_or(Duration::from_secs(60)).min(NEVER),
    };
    Ok((config, limit.unwrap_or(TIMEOUT).min(TIMEOUT)))
}

fn store(text: &str, url: &Url, host: &str) -> io::Result<Arc<dyn ObjectStore>> {
    let (retries, limit) = retries()?;
    let client = ClientOptions::new()
        .with_timeout(limit)
        .with_connect_timeout(limit.min(Duration::from_secs(10)));
    let made: object_store::Result<Arc<dyn ObjectStore>> = match url.scheme() {
        "http" | "https" => {
            let mut base = url.clone();
            base.set_path("");
            HttpBuilder::new()
                .with_url(base)
                .with_client_options(client.with_allow_http(true))
                .with_retry(retries)
                .build()
                .map(|store| Arc::new(store) as _)
        }
        "s3" => {
            let mut builder = AmazonS3Builder::from_env().with_bucket_name(host);
            for (key, value) in profile() {
                if builder.get_config_value(&key).is_none() {
                    builder = builder.with_config(key, value);
                }
            }
            let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
            let source = endpoint_of_aws(&variables(), endpoint.as_deref());
            let plain = is_plain(text, &source, endpoint)?;
            builder
                .with_client_options(client.with_allow_http(plain))
                .with_retry(retries)
                .build()
                .map(|store| Arc::new(store) as _)
        }
        "gs" => {
            let server = std::env::var("STORAGE_EMULATOR_HOST").unwrap_or_default();
            // A token of Google must not travel without TLS. The accounts of test servers have no tokens.
            let (builder, plain) = if server.is_empty() {
                (GoogleCloudStorageBuilder::from_env(), false)
            } else {
                let account = test_account(&server)
                    .map_err(|e| wrong(text, format_args!("STORAGE_EMULATOR_HOST: {e}")))?;
                let builder = GoogleCloudStorageBuilder::new().with_service_account_key(account);
                (builder, true)
            };
            builder
                .with_bucket_name(host)
                .with_client_options(client.with_allow_http(plain))
                .with_retry(retries)
                .build()
                .map(|store| Arc::new(store) as _)
        }
        "az" => return azure(text, host, &variables(), client, retries),
        scheme => {
            return Err(wrong(
                text,
                format_args!(
                    "'{scheme}' is not a known scheme (try https, s3, gs, az or file+objects)"
                ),
            ));
        }
    };
    made.map_err(|e| failed(text, e))
}

/// Returns the variables of the environment that are text.
fn variables() -> BTreeMap<String, String> {
    let all = std::env::vars_os();
    all.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Makes a client of a container of Azure.
fn azure(
    text: &str,
    container: &str,
    variables: &BTreeMap<String, String>,
    client: ClientOptions,
    retries: RetryConfig,
) -> io::Result<Arc<dyn ObjectStore>> {
    let AzureSettings {
        builder,
        key_variable,
        endpoint_variable,
    } = azure_settings(variables);
    // The error names the variable, and not the secret in it.
    let named = key_variable.map_or(text.into(), |name| format!("{text}: {name}"));
    if let Some(key) = builder.get_config_value(&AzureConfigKey::AccessKey)
        && AzureAccessKey::try_new(&key).is_err()
    {
        return Err(wrong(&named, "the key of the account is not in base64"));
    }
    let endpoint = builder.get_config_value(&AzureConfigKey::Endpoint);
    let source = endpoint_variable.unwrap_or_default();
    let plain = is_plain(text, &source, endpoint)?;
    let made = builder
        .with_container_name(container)
        .with_client_options(client.with_allow_http(plain))
        .with_retry(retries)
        .build();
    match made {
        Ok(store) => Ok(Arc::new(store)),
        Err(e) => Err(failed(&named, e)),
    }
}

/// Returns the name of the variable that has the endpoint of S3, or of the setting in the files of the command line of AWS.
fn endpoint_of_aws(variables: &BTreeMap<String, String>, endpoint: Option<&str>) -> String {
    let is_endpoint = |name: &str| {
        let key = name.to_ascii_lowercase().parse();
        name.starts_with("AWS_") && matches!(key, Ok(AmazonS3ConfigKey::Endpoint))
    };
    let mut named = variables
        .iter()
        .filter(|(name, value)| Some(value.as_str()) == endpoint && is_endpoint(name));
    let found = named.next().map(|(name, _)| name.clone());
    found.unwrap_or_else(|| "endpoint_url".into())
}

/// Returns whether an endpoint has no TLS, such as a test server of this machine. Refuses one that is not the address of a server, at
/// which the store's client would panic. The error names the variable, because an endpoint may have a password or a signature in it.
fn is_plain(text: &str, variable: &str, endpoint: Option<String>) -> io::Result<bool> {
    let Some(endpoint) = endpoint else {
        return Ok(false);
    };
    let is_plain_text = |b: u8| b.is_ascii_graphic() && !br#""<>\^`{|}"#.contains(&b);
    let url = Url::parse(&endpoint).ok().filter(Url::has_host);
    let url = url.filter(|_| endpoint.bytes().all(is_plain_text));
    match url.as_ref().map(Url::scheme) {
        Some("http") => Ok(true),
        Some("https") => Ok(false),
        _ => Err(wrong(
            text,
            format_args!(
                "{variable}: the endpoint is not the address of a server (try http://127.0.0.1:9000)"
            ),
        )),
    }
}

/// Returns the account of a test server of Google's interface, in the form of a service account's file: it has no credentials.
fn test_account(server: &str) -> Result<String, &'static str> {
    const WRONG: &str = "not the address of a server (try http://localhost:4443)";
    let server = if server.contains("://") {
        server.to_owned()
    } else {
        format!("http://{server}")
    };
    let url = Url::parse(&server).map_err(|_| WRONG)?;
    let is_web = matches!(url.scheme(), "http" | "https");
    let url = url.as_str().trim_end_matches('/');
    // These characters have a meaning in JSON.
    if !is_web || url.contains(['"', '\\']) {
        return Err(WRONG);
    }
    Ok(format!(
        r#"{{"gcs_base_url":"{url}","disable_oauth":true,"client_email":"","private_key":"","private_key_id":""}}"#
    ))
}

/// Settings of Azure from variables.
struct AzureSettings {
    builder: MicrosoftAzureBuilder,
    /// The variable that has the key or the signature.
    key_variable: Option<String>,
    /// The variable that has the endpoint.
    endpoint_variable: Option<String>,
}

/// Returns the settings in a connection string alone, because those of two accounts must not mix. Without one, returns the settings in
/// the variables that the crate object_store reads and in those of the command line of Azure.
fn azure_settings(variables: &BTreeMap<String, String>) -> AzureSettings {
    const CONNECTION: &str = "AZURE_STORAGE_CONNECTION_STRING";
    let variable = |name: &str| variables.get(name).filter(|value| !value.is_empty());
    let mut settings = AzureSettings {
        builder: MicrosoftAzureBuilder::new(),
        key_variable: None,
        endpoint_variable: None,
    };
    let mut set = |name: &str, key: AzureConfigKey, value: &str| {
        // A key is used before a signature.
        let has_key = (settings.builder)
            .get_config_value(&AzureConfigKey::AccessKey)
            .is_some();
        if key == AzureConfigKey::AccessKey || key == AzureConfigKey::SasKey && !has_key {
            settings.key_variable = Some(name.to_owned());
        }
        if key == AzureConfigKey::Endpoint {
            settings.endpoint_variable = Some(name.to_owned());
        }
        settings.builder = std::mem::take(&mut settings.builder).with_config(key, value);
    };
    if let Some(text) = variable(CONNECTION) {
        for (key, value) in connection_string(text) {
            set(CONNECTION, key, &value);
        }
        return settings;
    }
    for name in variables.keys().filter(|name| name.starts_with("AZURE_")) {
        if let Some(value) = variable(name)
            && let Ok(key) = name.to_ascii_lowercase().parse()
        {
            set(name, key, value);
        }
    }
    if let Some(value) = variable("IDENTITY_ENDPOINT") {
        set("IDENTITY_ENDPOINT", AzureConfigKey::MsiEndpoint, value);
    }
    let account = variable("AZURE_STORAGE_ACCOUNT");
    let other = variable("AZURE_STORAGE_ACCOUNT_NAME");
    // The key is that of the account in the variable beside it.
    if account.is_none() || other.is_none() || account == other {
        if let Some(value) = account {
            set("AZURE_STORAGE_ACCOUNT", AzureConfigKey::AccountName, value);
        }
        if let Some(value) = variable("AZURE_STORAGE_KEY") {
            set("AZURE_STORAGE_KEY", AzureConfigKey::AccessKey, value);
        }
    }
    settings
}

/// Returns the settings in a connection string of Azure.
fn connection_string(text: &str) -> Vec<(AzureConfigKey, String)> {
    let fields = text.split(';').filter_map(|field| field.split_once('='));
    let fields: Vec<(&str, &str)> = fields.map(|(name, value)| (name.trim(), value)).collect();
    let field = |name: &str| {
        let named = fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        let value = named.map(|(_, value)| value.trim().to_owned());
        value.filter(|value| !value.is_empty())
    };
    let endpoint = field("BlobEndpoint");
    let of_endpoint = || {
        let url = Url::parse(endpoint.as_deref()?).ok()?;
        Some(url.host_str()?.split('.').next()?.to_owned())
    };
    // A string with a signature may leave the account out, which is then the first part of the host.
    let account = field("AccountName").or_else(of_endpoint);
    let of_suffix = || {
        let scheme = field("DefaultEndpointsProtocol").unwrap_or_else(|| "https".into());
        let (account, suffix) = (account.as_ref()?, field("EndpointSuffix")?);
        Some(format!("{scheme}://{account}.blob.{suffix}"))
    };
    let endpoint = endpoint.clone().or_else(of_suffix);
    let settings = [
        (AzureConfigKey::UseEmulator, field("UseDevelopmentStorage")),
        (AzureConfigKey::AccountName, account.clone()),
        (AzureConfigKey::AccessKey, field("AccountKey")),
        (AzureConfigKey::SasKey, field("SharedAccessSignature")),
        (AzureConfigKey::Endpoint, endpoint),
    ];
    let settings = settings.into_iter();
    settings
        .filter_map(|(key, value)| Some((key, value?)))
        .collect()
}

/// Reads the credentials and the region of the chosen profile from the files of the AWS command line, if they exist.
fn profile() -> Vec<(AmazonS3ConfigKey, String)> {
    let name = std::env::var("AWS_PROFILE").unwrap_or_else(|_| "default".into());
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    let mut found = Vec::new();
    for (variable, file) in [
        ("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
        ("AWS_CONFIG_FILE", ".aws/config"),
    ] {
        let file = std::env::var_os(variable).map_or_else(|| home.join(file), PathBuf::from);
        let text = std::fs::read_to_string(file).unwrap_or_default();
        found.extend(section(&text, &name));
    }
    found
}

/// Returns the settings of a profile in the text of such a file.
fn section(text: &str, name: &str) -> Vec<(AmazonS3ConfigKey, String)> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if let Some(title) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            inside = title.trim_start_matches("profile ").trim() == name;
        } else if inside && let Some((key, value)) = line.split_once('=') {
            let key = match key.trim() {
                "aws_access_key_id" => AmazonS3ConfigKey::AccessKeyId,
                "aws_secret_access_key" => AmazonS3ConfigKey::SecretAccessKey,
                "aws_session_token" => AmazonS3ConfigKey::Token,
                "region" => AmazonS3ConfigKey::Region,
                "endpoint_url" => AmazonS3ConfigKey::Endpoint,
                _ => continue,
            };
            found.push((key, value.trim().to_owned()));
        }
    }
    found
}

#[test]
fn profiles_are_read() {
    let text = "[default]\naws_access_key_id = a\n[profile x]\n# c\nregion=eu-west-1\naws_access_key_id=b\n";
    let values = |name| {
        section(text, name)
            .into_iter()
            .map(|(_, v)| v)
            .collect::<Vec<_>>()
    };
    assert_eq!(values("default"), ["a"]);
    assert_eq!(values("x"), ["eu-west-1", "b"]);
    assert!(values("y").is_empty());
}

#[cfg(test)]
fn azure_of(variables: &[(&str, &str)]) -> ([String; 4], Option<String>) {
    let variables = variables
        .iter()
        .map(|(n, v)| (n.to_string(), v.to_string()));
    let settings = azure_settings(&variables.collect());
    let value = |key| settings.builder.get_config_value(&key).unwrap_or_default();
    let values = [
        AzureConfigKey::AccountName,
        AzureConfigKey::AccessKey,
        AzureConfigKey::SasKey,
        AzureConfigKey::Endpoint,
    ];
    (values.map(value), settings.key_variable)
}

#[test]
fn connection_strings_of_azure_are_read() {
    const CONNECTION: &str = "AZURE_STORAGE_CONNECTION_STRING";
    let of = |text: &str| azure_of(&[(CONNECTION, text)]).0;
    let cloud = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=a2V5==;EndpointSuffix=core.windows.net";
    let cloud_values = ["a", "a2V5==", "", "https://a.blob.core.windows.net"];
    assert_eq!(of(cloud), cloud_values);
    let own = "BlobEndpoint=http://127.0.0.1:10000/a; AccountName=a;EndpointSuffix=x;=;x";
    assert_eq!(of(own), ["a", "", "", "http://127.0.0.1:10000/a"]);
    let signed = "BlobEndpoint=https://c.blob.x/;SharedAccessSignature=sv=1&sig=2;AccountKey=";
    assert_eq!(of(signed), ["c", "", "sv=1&sig=2", "https://c.blob.x/"]);
    assert_eq!(of(""), ["", "", "", ""]);
    // The settings of another account are not mixed with it.
    let mixed = azure_of(&[
        (CONNECTION, cloud),
        ("AZURE_STORAGE_ACCOUNT", "b"),
        ("AZURE_STORAGE_ACCOUNT_NAME", "b"),
        ("AZURE_STORAGE_SAS_TOKEN", "sig=b"),
        ("AZURE_ENDPOINT", "https://b"),
    ]);
    assert_eq!(mixed.0, cloud_values);
    assert_eq!(mixed.1.as_deref(), Some(CONNECTION));
}

#[test]
fn variables_of_azure_are_read() {
    let of = |variables: &[(&str, &str)]| {
        let ([account, key, sas, _], variable) = azure_of(variables);
        [account, key, sas, variable.unwrap_or_default()]
    };
    let pair = [
        ("AZURE_STORAGE_ACCOUNT", "a"),
        ("AZURE_STORAGE_KEY", "k"),
        ("AZURE_STORAGE_CONNECTION_STRING", ""),
        ("AZURE_STORAGE_ACCOUNT_NAME", ""),
        ("AZURE_STORAGE_SAS_TOKEN", ""),
    ];
    assert_eq!(of(&pair), ["a", "k", "", "AZURE_STORAGE_KEY"]);
    let empty = [("AZURE_STORAGE_ACCOUNT", ""), ("AZURE_STORAGE_KEY", "")];
    assert_eq!(of(&empty), ["", "", "", ""]);
    let other = [("AZURE_STORAGE_ACCOUNT_NAME", "b"), pair[0], pair[1]];
    assert_eq!(of(&other), ["b", "", "", ""]);
    let signed = [pair[0], ("AZURE_STORAGE_SAS_TOKEN", "sig=1")];
    assert_eq!(of(&signed), ["a", "", "sig=1", "AZURE_STORAGE_SAS_TOKEN"]);
}

#[test]
fn wrong_keys_of_azure_are_named_by_their_variable() {
    let connection = "AZURE_STORAGE_CONNECTION_STRING";
    let account = ("AZURE_STORAGE_ACCOUNT", "a");
    for (name, value) in [
        (connection, "AccountName=a;AccountKey=sec ret"),
        (connection, "AccountName=a;SharedAccessSignature=secret"),
        ("AZURE_STORAGE_KEY", "sec ret"),
        ("AZURE_STORAGE_SAS_TOKEN", "secret"),
    ] {
        let variables = [account, (name, value)].map(|(n, v)| (n.into(), v.into()));
        let (client, retries) = (ClientOptions::new(), RetryConfig::default());
        let made = azure("az://b/x", "b", &variables.into(), client, retries);
        let said = made.expect_err(value).to_string();
        assert!(said.starts_with(&format!("az://b/x: {name}: ")), "{said}");
        assert!(!said.contains("ret"), "{said}");
    }
}

#[test]
fn test_servers_of_google_have_an_account() {
    for (server, url) in [
        ("localhost:9023", "http://localhost:9023"),
        ("https://h/", "https://h"),
        ("http://h/\"x", "http://h/%22x"),
    ] {
        let account = test_account(server).unwrap();
        assert!(account.contains(&format!(r#":"{url}","#)), "{account}");
    }
    for wrong in ["", "http://", "x:\"a://b", "ftp://h", "http://h/?a\\b"] {
        let said = test_account(wrong).unwrap_err();
        assert!(said.contains("try http://"), "{wrong}");
    }
}

#[test]
fn wrong_addresses_are_refused() {
    for (text, why) in [
        ("https://", "empty host"),
        ("https://h", "names no file"),
        ("ftp://h/x", "not a known scheme"),
        ("https://h/x?cache=y", "'y' is not a size"),
        ("https://h/x?size=99999999999T", "is not a size"),
        ("https://h/x?disk-cache=", "unknown field 'disk-cache='"),
        ("https://h/x?z=1", "unknown field 'z=1'"),
        ("https://h/x?compress", "for images of objects"),
        (
            "s3://b/x?key-file=/dev/null",
            "/dev/null: a key has 32 bytes",
        ),
        ("file+objects://x", "not a directory"),
    ] {
        let said = Address::parse(text).err().expect(text).to_string();
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn endpoints_that_are_not_addresses_are_refused() {
    let plain = |endpoint: &str| is_plain("s3://b/x", "VARIABLE", Some(endpoint.to_owned()));
    assert!(plain("http://127.0.0.1:9000").unwrap() && plain("http://[::1]:9/p").unwrap());
    assert!(!plain("https://s3.example.com").unwrap());
    for wrong in [
        "",
        "127.0.0.1:9000",
        "localhost:9000",
        "http://",
        "http://[",
        "http://h:99999",
        "http://h/a b",
        "ftp://h",
        "//user:secret@h",
        "h/c?sig=secret",
    ] {
        let said = plain(wrong).unwrap_err().to_string();
        assert!(
            said.starts_with("s3://b/x: VARIABLE: the endpoint is not"),
            "{said}"
        );
        assert!(!said.contains("secret"), "{said}");
    }
}

#[test]
fn variables_of_endpoints_are_named() {
    let of = |variables: &[(&str, &str)]| {
        let variables = variables
            .iter()
            .map(|(n, v)| (n.to_string(), v.to_string()));
        endpoint_of_aws(&variables.collect(), Some("h"))
    };
    assert_eq!(of(&[]), "endpoint_url");
    assert_eq!(of(&[("AWS_REGION", "h")]), "endpoint_url");
    let both = [("AWS_ENDPOINT", "x"), ("AWS_ENDPOINT_URL", "h")];
    assert_eq!(of(&both), "AWS_ENDPOINT_URL");
    for (name, value) in [
        ("AZURE_STORAGE_ENDPOINT", "h?sig=secret"),
        (
            "AZURE_STORAGE_CONNECTION_STRING",
            "AccountName=a;BlobEndpoint=h?sig=secret",
        ),
    ] {
        let variables = [("AZURE_STORAGE_ACCOUNT", "a"), (name, value)];
        let variables = variables.map(|(n, v)| (n.into(), v.into()));
        let (client, retries) = (ClientOptions::new(), RetryConfig::default());
        let made = azure("az://b/x", "b", &variables.into(), client, retries);
        let said = made.expect_err(value).to_string();
        assert!(
            said.starts_with(&format!("az://b/x: {name}: the endpoint")),
            "{said}"
        );
        assert!(!said.contains("secret"), "{said}");
    }
}
