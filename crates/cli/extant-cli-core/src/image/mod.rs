//! Images: their locations and contents, and opening, changing and creating them.

pub mod advice;
pub mod failed_open;
pub mod identity;
pub mod images;
pub mod in_place;
pub mod io_timeout;
pub mod logged_image;
pub mod new_file;
pub mod overlaid;
pub mod present_content;
pub mod rate_limit;
pub mod remote;
pub mod resize;
mod silent_servers;
pub mod store;
pub mod streams;
pub mod sums;
pub mod undo_log;
pub mod verified;
pub mod verity;
pub mod whole_file;
