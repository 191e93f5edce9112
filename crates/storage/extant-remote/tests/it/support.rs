//! The served program, with a client.

use extant_nbd::{NbdDevice, NbdUrl, Options};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The program with a client; ends with its client.
pub struct Served {
    child: Child,
    pub device: Option<NbdDevice>,
}

impl Served {
    /// Starts the program for an address. Returns its message if it fails.
    pub fn start(dir: &Path, address: &str, envs: &[(&str, &str)]) -> Result<Self, String> {
        let socket = dir.join("nbd");
        let mut child = Command::new(env!("CARGO_BIN_EXE_extant-remote"))
            .arg("serve")
            .arg(&socket)
            .arg(address)
            .envs(envs.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.as_mut().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        if line.trim_end() != "ready" {
            assert!(!child.wait().unwrap().success());
            return Err(line);
        }
        let url = format!("nbd+unix:///?socket={}", socket.display());
        let options = Options {
            reconnect: std::time::Duration::ZERO,
            ..Options::default()
        };
        let device = NbdDevice::connect(&NbdUrl::parse(&url).unwrap(), &options).unwrap();
        assert!(!socket.exists(), "one client is served");
        Ok(Self {
            child,
            device: Some(device),
        })
    }

    pub fn device(&self) -> &NbdDevice {
        self.device.as_ref().unwrap()
    }

    /// Returns the number of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the program.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Disconnects, and waits for the end of the program.
    pub fn end(mut self) {
        self.device = None;
        assert!(self.child.wait().unwrap().success());
    }
}
