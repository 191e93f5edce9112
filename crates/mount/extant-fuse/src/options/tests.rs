use super::*;

/// The table of the options, which users read.
const PAGE: &str = include_str!("../../../../../docs/mount.md");

/// Returns the rows of the page's table of options: the options, their effect, and their description.
fn rows() -> Vec<(Vec<&'static str>, &'static str, &'static str)> {
    let table = PAGE
        .split("## All options")
        .nth(1)
        .expect("the page has it");
    let table = table.split("\n## ").next().unwrap_or_default();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let words = cells.next().unwrap_or_default();
        let words = words.split('`').skip(1).step_by(2).collect();
        (
            words,
            cells.next().unwrap_or_default(),
            cells.next().unwrap_or_default(),
        )
    })
    .collect()
}

/// Every row of the table is true.
#[test]
fn every_option_of_the_page_does_what_it_says() {
    let rows = rows();
    assert!(rows.len() > 60, "{} rows", rows.len());
    for (words, what, says) in rows {
        for word in words {
            let result = parsed(word);
            match what {
                "does" => {
                    let options = result.unwrap_or_else(|e| panic!("{e}"));
                    // A default can be restored after another option changed it.
                    let mut other = MountOptions::default();
                    other.parse("ro,nosuid,nodev,noexec,sync,dirsync,noatime,nodiratime,lazytime,noauto_da_alloc,mb_optimize_scan=0,errors=shutdown").unwrap();
                    let before = other.clone();
                    other.parse(word).unwrap();
                    assert!(
                        options != MountOptions::default() || other != before,
                        "{word} does nothing"
                    );
                }
                "accepts" => {
                    assert_eq!(result, Ok(MountOptions::default()), "{word}");
                    assert!(!says.is_empty(), "{word}");
                }
                "refuses" => {
                    let error = result.expect_err(word);
                    assert!(
                        says.contains(error.why) && error.why != "not known",
                        "{word}: the page says {says:?}, the command {:?}",
                        error.why
                    );
                }
                other => panic!("{word}: {other}?"),
            }
        }
    }
}

/// The page has every word that is accepted or refused.
#[test]
fn the_page_has_every_option() {
    let listed: Vec<&str> = rows()
        .iter()
        .flat_map(|(words, ..)| words.clone())
        .map(|word| word.split('=').next().unwrap_or_default())
        .collect();
    for word in words::all() {
        let name = word.split('=').next().unwrap_or_default();
        assert!(listed.contains(&name), "docs/mount.md does not have {word}");
    }
}

fn parsed(list: &str) -> Result<MountOptions, OptionError> {
    let mut options = MountOptions::default();
    options.parse(list).map(|()| options)
}

#[test]
fn a_later_option_wins() {
    let options = parsed("ro,noatime,rw,strictatime,suid,nosuid").unwrap();
    assert!(!options.read_only && !options.suid);
    assert_eq!(options.settings.access_times, AccessTimes::Strict);
    let user = parsed("user,exec").unwrap();
    assert!(!user.suid && !user.dev && user.exec);
}

#[test]
fn values_are_checked() {
    assert_eq!(parsed("cache=2g").unwrap().cache_bytes, Some(2 << 30));
    let interval = |list| parsed(list).unwrap().settings.commit_interval;
    let as_unsaid = MountOptions::default().settings.commit_interval;
    assert_eq!(interval("commit=30,commit=0"), as_unsaid);
    assert_eq!(interval("commit=30"), Duration::from_secs(30));
    for bad in [
        "cache",
        "cache=",
        "cache=x",
        "cache=99999999T",
        "commit=-1",
        "errors=maybe",
        "ro=1",
        "bogus",
        "bogus=2",
    ] {
        assert!(parsed(bad).is_err(), "{bad}");
    }
    assert!(parsed("x-systemd.idle-timeout=60,nofail,defaults,subtype=extant").is_ok());
}
