//! mdtest over an image and, if given, a mounted path: `mdtest_quick IMAGE [PATH] [tasks files iterations shared]`.
use extant_bench::mdtest::{Params, run};
use extant_bench::target::{LibTarget, PathTarget, Target};

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, or: usize| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(or);
    let params = Params { tasks: number(2, 2), files: number(3, 100_000), iterations: number(4, 5), shared: number(5, 0) != 0 };
    let volume = extant::OpenOptions::new().open(&args[0])?;
    let lib = LibTarget(volume);
    let path = args.get(1).filter(|p| *p != "-").map(|p| PathTarget { root: p.into() });
    let mut targets: Vec<&dyn Target> = vec![&lib];
    if let Some(path) = &path {
        targets.push(path);
    }
    for r in run(&targets, params, |_| {})? {
        println!(
            "{:30} create {:9.0}/s synced {:9.0}/s {:5.0} ns cpu; unlink {:9.0}/s synced {:9.0}/s {:5.0} ns cpu",
            r.target, r.creates, r.creates_synced, r.create_cpu_ns, r.unlinks, r.unlinks_synced, r.unlink_cpu_ns
        );
    }
    lib.0.close()?;
    Ok(())
}
