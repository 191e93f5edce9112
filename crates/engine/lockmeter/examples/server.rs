//! A toy server with a hot lock, and the ten lines that find it, each marked by `// meter`: `cargo run --release -p
//! lockmeter --example server`.
//!
//! Clients send words, and the server answers how often it has seen each. All of them share one table, and some requests
//! hold its lock for a walk through the whole table.

use lockmeter::{Mutex, Snapshot, lock_class}; // meter
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

lock_class!(Words = "words"); // meter
lock_class!(Log = "log"); // meter

#[derive(Default)]
struct Server {
    words: Mutex<HashMap<String, u64>, Words>, // meter
    log: Mutex<Vec<String>, Log>,              // meter
}

impl Server {
    fn answer(&self, word: &str) -> u64 {
        if word == "sum" {
            return self.words.lock().values().sum(); // the hot line
        }
        let mut words = self.words.lock();
        let seen = words.entry(word.to_owned()).or_default();
        *seen += 1;
        *seen
    }

    fn serve(&self, client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?; // otherwise an answer waits for the client's acknowledgement
        let mut out = client.try_clone()?;
        for line in BufReader::new(client).lines() {
            let line = line?;
            out.write_all(format!("{}\n", self.answer(&line)).as_bytes())?;
            self.log.lock().push(line);
        }
        Ok(())
    }
}

/// Sends requests, one in four of which is the costly one.
fn client(server: SocketAddr, requests: u32) -> io::Result<()> {
    let mut out = TcpStream::connect(server)?;
    out.set_nodelay(true)?;
    let mut answers = BufReader::new(out.try_clone()?).lines();
    for n in 0..requests {
        if n.is_multiple_of(4) {
            out.write_all(b"sum\n")?;
        } else {
            out.write_all(format!("word{}\n", n % 5000).as_bytes())?;
        }
        answers.next().transpose()?;
    }
    Ok(())
}

fn main() -> io::Result<()> {
    lockmeter::set_on(true); // meter
    let before = Snapshot::take(); // meter
    let server = Server::default();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    std::thread::scope(|s| {
        let clients: Vec<_> = (0..4)
            .map(|_| s.spawn(move || client(address, 20_000)))
            .collect();
        for connection in listener.incoming().take(4) {
            let connection = connection?;
            s.spawn(|| server.serve(connection));
        }
        clients
            .into_iter()
            .try_for_each(|client| client.join().unwrap_or(Ok(())))
    })?;
    let seen = Snapshot::take().since(&before); // meter
    println!("{seen}"); // meter
    println!("{} requests", server.log.lock().len());
    Ok(())
}
