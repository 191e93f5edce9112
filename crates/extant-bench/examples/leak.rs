fn main() -> anyhow::Result<()> {
    let v = extant::OpenOptions::new().open(std::env::args().nth(1).unwrap())?;
    for r in 0..3 {
        let d = v.create_dir(format!("d{r}"), 0o755)?;
        for n in 0..20000 { d.create(format!("f{n}"), 0o644)?; }
        println!("after create {}", v.statfs()?.free_inodes);
        v.sync()?;
        println!("after sync {}", v.statfs()?.free_inodes);
        for n in 0..20000 { d.unlink(format!("f{n}"))?; }
        println!("after unlink {}", v.statfs()?.free_inodes);
        v.sync()?;
        println!("after sync {}", v.statfs()?.free_inodes);
    }
    Ok(())
}
