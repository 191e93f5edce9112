//! Images on object stores that others wrote, one test for each.

use crate::support::Served;
use blockdev::{BlockDevice, conformance};
use needs::servers::{Store, StoreKind};

#[test]
fn s3_of_moto() {
    an_image_on(StoreKind::Moto);
}

#[test]
fn s3_of_s3s_fs() {
    an_image_on(StoreKind::S3sFs);
}

#[test]
fn s3_of_versitygw() {
    an_image_on(StoreKind::VersityGateway);
}

#[test]
fn gs_of_fake_gcs_server() {
    an_image_on(StoreKind::FakeGcs);
}

#[test]
fn az_of_azurite() {
    an_image_on(StoreKind::Azurite);
}

/// Conformance, a killed writer, a writer that returns, the deletion of segments, and errors.
fn an_image_on(kind: StoreKind) {
    let Some(store) = Store::start(kind) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    // A file has the keys of S3.
    let file = dir.path().join("credentials");
    let keys = "[default]\naws_access_key_id=a\naws_secret_access_key=b\nregion=us-east-1\n";
    std::fs::write(&file, keys).unwrap();
    let mut envs = store.envs(store.port);
    envs.retain(|(name, _)| !name.starts_with("AWS_") || *name == "AWS_ENDPOINT_URL");
    envs.push(("AWS_SHARED_CREDENTIALS_FILE", file.display().to_string()));
    let envs: Vec<_> = envs.iter().map(|(k, v)| (*k, v.as_str())).collect();
    let start = |address: &str| Served::start(dir.path(), address, &envs);
    let disk = store.address("disk");
    let served = start(&format!("{disk}?size=16M")).unwrap();
    conformance::check(served.device(), 1).unwrap();
    served.device().write_at(0, b"kept").unwrap();
    served.device().flush().unwrap();
    served.device().write_at(0, b"lost").unwrap();
    served.kill();
    let served = start(&disk).unwrap();
    let mut found = [0; 4];
    served.device().read_at(0, &mut found).unwrap();
    assert_eq!(&found, b"kept");
    // Another writer, by force; the first is refused when it returns.
    let other = tempfile::tempdir().unwrap();
    let address = format!("{disk}?takeover");
    let new = Served::start(other.path(), &address, &envs).unwrap();
    served.device().write_at(0, b"late").unwrap();
    assert!(served.device().flush().is_err());
    new.device().read_at(0, &mut found).unwrap();
    assert_eq!(&found, b"kept");
    // A map replaces segments, which are deleted.
    for n in 0..150_u8 {
        new.device().write_at(4096, &[n; 4096]).unwrap();
        new.device().flush().unwrap();
    }
    new.end();
    let served = start(&disk).unwrap();
    let mut bytes = [0; 4097];
    served.device().read_at(4095, &mut bytes).unwrap();
    assert!(bytes[1..].iter().all(|byte| *byte == 149));
    served.device().read_at(0, &mut found).unwrap();
    assert_eq!(&found, b"kept");
    served.end();
    let said = start(&store.address("other")).err().unwrap();
    assert!(said.contains("no image here"), "{said}");
    let said = start(&disk.replace("bucket", "nowhere")).err().unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
}
