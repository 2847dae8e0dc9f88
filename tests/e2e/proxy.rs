//! A TCP proxy to PostgreSQL that can be cut: a daemon behind it sees its database go away and come back.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use trunkline_testkit::database::Database;

#[derive(Debug)]
pub(crate) struct Proxy {
    at: SocketAddr,
    to: String,
    open: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Proxy {
    /// Makes a proxy to the database's server, cut at first.
    pub(crate) fn new(database: &Database) -> Self {
        let port = trunkline_testkit::process::free_port();
        let url = database.url();
        let (_, rest) = url.split_once('@').expect("a user");
        let (to, _) = rest.split_once('/').expect("a database");
        Self {
            at: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            to: to.to_owned(),
            open: Arc::default(),
        }
    }

    /// Returns the environment of a daemon that reaches the database through this proxy.
    pub(crate) fn environment(&self, database: &Database) -> Vec<(String, String)> {
        let mut environment = database.environment();
        for (name, value) in &mut environment {
            if name == "TRUNKLINE__DATABASE__URL" {
                *value = value.replace(&self.to, &self.at.to_string());
            }
        }
        environment
    }

    /// Accepts connections from now on.
    pub(crate) fn repair(&self) {
        let listener = TcpListener::bind(self.at).expect("the port is free");
        listener.set_nonblocking(true).expect("it can be polled");
        *self.open.lock().expect("nobody panics") = Some(Vec::new());
        let (open, to) = (Arc::clone(&self.open), self.to.clone());
        thread::spawn(move || {
            while open.lock().expect("nobody panics").is_some() {
                match listener.accept() {
                    Ok((near, _)) => pass(near, &to, &open),
                    Err(_) => thread::sleep(Duration::from_millis(5)),
                }
            }
        });
    }

    /// Cuts every connection, and refuses new ones.
    pub(crate) fn cut(&self) {
        let open = self.open.lock().expect("nobody panics").take();
        for stream in open.into_iter().flatten() {
            // The connection may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Returns once the port no longer listens.
        while TcpStream::connect(self.at).is_ok() {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        *self.open.lock().expect("nobody panics") = None;
    }
}

fn pass(near: TcpStream, to: &str, open: &Mutex<Option<Vec<TcpStream>>>) {
    let Ok(far) = TcpStream::connect(to) else {
        return;
    };
    near.set_nonblocking(false).expect("it can wait");

    let ends = [&near, &far].map(|end| end.try_clone().expect("a second handle"));
    if let Some(open) = &mut *open.lock().expect("nobody panics") {
        open.extend(ends);
    }

    let back = (
        far.try_clone().expect("a handle"),
        near.try_clone().expect("a handle"),
    );

    for (mut from, mut into) in [(near, far), back] {
        thread::spawn(move || {
            let mut octets = [0; 16 * 1024];
            while let Ok(count @ 1..) = from.read(&mut octets) {
                if into.write_all(&octets[..count]).is_err() {
                    break;
                }
            }
            let _ = into.shutdown(Shutdown::Both);
        });
    }
}
