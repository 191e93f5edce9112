//! The needs of `extant shell`: user name spaces, and subordinate user and group numbers.

use super::Finding;
use crate::host::name_spaces::{self, unshare};
use crate::host::system::{Lack, System};

pub fn findings(system: &System) -> Vec<Finding> {
    // Root needs neither: its shell has a mount name space only.
    if system.is_root() {
        return Vec::new();
    }
    let numbers = "apt and its like in extant shell --chroot";
    vec![
        Finding::needed(
            "user name spaces",
            "extant shell without root",
            name_spaces::look(system),
        ),
        Finding::needed("subordinate numbers", numbers, subordinate(system)),
    ]
}

fn subordinate(system: &System) -> Result<String, Lack> {
    system.subordinate_ids()?;
    // The earlier finding reports a failure of plain name spaces.
    if unshare(&[]).is_ok() {
        unshare(&["--map-auto"]).map_err(Lack::for_good)?;
    }
    Ok(format!(
        "/etc/subuid and /etc/subgid have them for {}",
        system.user_name()
    ))
}
