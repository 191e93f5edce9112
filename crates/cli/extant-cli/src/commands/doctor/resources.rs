//! The available memory, and the limits of this process.

use super::Finding;
use crate::host::system::{Lack, System};
use extant_cli_core::format::show::human;
use rustix::process::{Resource, getrlimit};

pub fn findings(system: &System) -> Vec<Finding> {
    let large = "large images and many files at a time";
    let rings = "io_uring on kernels that count its memory as locked";
    vec![
        Finding::optional("memory", large, memory(system)),
        Finding::optional(
            "huge pages",
            "fewer page faults while much is in memory",
            huge(system),
        ),
        Finding::optional("locked memory", rings, locked(system)),
    ]
}

/// With less memory than this, commands on large images and mounts should use smaller caches.
const ENOUGH: u64 = 512 << 20;

fn memory(system: &System) -> Result<String, Lack> {
    let info = system.text("/proc/meminfo").unwrap_or_default();
    let available = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .map(|kib| kib.saturating_mul(1024));
    let limit = cgroup_limit(system);
    let known = available.into_iter().chain(limit).min();
    let Some(least) = known else {
        return Err(Lack::for_good("the system does not say how much there is"));
    };
    let mut found = match available {
        Some(bytes) => format!("{} available", human(bytes)),
        None => String::from("unknown how much is available"),
    };
    match limit {
        Some(bytes) => found += &format!(", limited to {} by its control group", human(bytes)),
        None => found += ", without a limit",
    }
    if least >= ENOUGH {
        Ok(found)
    } else {
        Err(Lack::mended_by(
            found,
            "extant mount -o cache=64M IMAGE DIR",
        ))
    }
}

/// Returns the smallest limit of the control groups of this process, of either version.
fn cgroup_limit(system: &System) -> Option<u64> {
    let groups = system.text("/proc/self/cgroup")?;
    let mut least: Option<u64> = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let (top, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            c if c.split(',').any(|c| c == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // Limits of parent groups apply, too.
        let mut path = path.trim_end_matches('/');
        loop {
            let value = system.text(&format!("{top}{path}/{file}"));
            // Version 1 encodes "no limit" as a number that no machine reaches.
            let bytes = value.and_then(|v| v.parse::<u64>().ok());
            least = bytes
                .filter(|b| *b < 1 << 60)
                .into_iter()
                .chain(least)
                .min();
            match path.rfind('/') {
                Some(slash) => path = path.get(..slash).unwrap_or_default(),
                None => break,
            }
        }
    }
    least
}

fn huge(system: &System) -> Result<String, Lack> {
    const SWITCH: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let Some(modes) = system.text(SWITCH) else {
        return Err(Lack::for_good("this kernel has no transparent huge pages"));
    };
    let now = modes
        .split(['[', ']'])
        .nth(1)
        .unwrap_or("in an unknown state");
    match now {
        "always" => Ok("transparent huge pages are on".into()),
        _ => Err(Lack::mended_by(
            format!("transparent huge pages are {now}"),
            system.write_line("always", SWITCH, false),
        )),
    }
}

/// The default limit of newer systems.
const LOCKED: u64 = 8 << 20;

fn locked(system: &System) -> Result<String, Lack> {
    let limit = getrlimit(Resource::Memlock);
    let Some(bytes) = limit.current else {
        return Ok("without a limit".into());
    };
    let found = format!("{} for each process", human(bytes));
    if bytes >= LOCKED || system.is_root() {
        return Ok(found);
    }
    let allowed = limit.maximum.is_none_or(|most| most >= LOCKED);
    let remedy = if allowed {
        format!("ulimit -l {}", LOCKED / 1024)
    } else {
        system.write_line(
            &format!("'* - memlock {}'", LOCKED / 1024),
            "/etc/security/limits.d/extant.conf",
            false,
        )
    };
    Err(Lack::mended_by(found, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plant(system: &System, file: &str, text: &str) {
        let path = system.file(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn the_smallest_limit_of_the_groups_above_counts() {
        let dir = tempfile::tempdir().unwrap();
        let system = System::planted(dir.path(), 1000);
        assert!(memory(&system).unwrap_err().what.contains("does not say"));
        plant(
            &system,
            "/proc/meminfo",
            "MemTotal: 9 kB\nMemAvailable:    8388608 kB\n",
        );
        assert_eq!(memory(&system).unwrap(), "8.0G available, without a limit");
        plant(&system, "/proc/self/cgroup", "1:cpu:/\n0::/a/b\n");
        plant(&system, "/sys/fs/cgroup/a/b/memory.max", "max\n");
        assert_eq!(cgroup_limit(&system), None);
        plant(&system, "/sys/fs/cgroup/a/memory.max", "1073741824\n");
        assert_eq!(cgroup_limit(&system), Some(1 << 30));
        plant(&system, "/sys/fs/cgroup/memory.max", "134217728\n");
        let lack = memory(&system).unwrap_err();
        assert!(lack.what.contains("limited to 128M"), "{}", lack.what);
        plant(&system, "/proc/self/cgroup", "4:memory,cpu:/x\n");
        plant(
            &system,
            "/sys/fs/cgroup/memory/x/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        assert_eq!(cgroup_limit(&system), None);
    }

    #[test]
    fn the_mode_of_huge_pages_is_the_one_in_brackets() {
        let dir = tempfile::tempdir().unwrap();
        let system = System::planted(dir.path(), 0);
        assert_eq!(huge(&system).unwrap_err().remedy, None);
        let switch = "/sys/kernel/mm/transparent_hugepage/enabled";
        plant(&system, switch, "always madvise [never]\n");
        assert_eq!(
            huge(&system).unwrap_err().what,
            "transparent huge pages are never"
        );
        plant(&system, switch, "[always] madvise never\n");
        assert!(huge(&system).is_ok());
    }
}
