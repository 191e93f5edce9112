//! The end at a panic in a build that aborts then, such as the static program.

/// Lets a panic end the process with one line and an exit code, as errors do, instead of the signal SIGABRT.
pub fn end_with_error(code: i32) {
    if cfg!(panic = "unwind") {
        return;
    }
    std::panic::set_hook(Box::new(move |panic| {
        if extant_disk::in_imago() {
            eprintln!("error: the image is damaged: its format cannot be read");
        } else {
            let text = panic.to_string().replace('\n', " ");
            eprintln!("error: internal error: {text}");
        }
        std::process::exit(code)
    }));
}
