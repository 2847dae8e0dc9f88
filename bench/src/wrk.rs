//! wrk, the HTTP load generator, run as a child process, and the parser of its report.

use std::io;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// Requests that wrk repeats.
#[derive(Clone, Debug)]
pub struct RepeatedRequests<'a> {
    /// Paths with their queries, requested in turn.
    pub paths: &'a [String],
    /// The key to send.
    pub bearer: Option<&'a str>,
    /// JSON to post; `None` for a GET.
    pub post: Option<&'a str>,
}

/// Result of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Answered {
    /// Answers per second.
    pub rate: f64,
    /// Median duration in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile of the durations in milliseconds.
    pub p99_ms: f64,
    /// Answers other than 2xx and 3xx, and failed connections.
    pub failed: u64,
}

/// Number of concurrent connections.
const CONNECTIONS: usize = 32;

/// Sends requests for `seconds` over keep-alive connections, from the calling thread's core.
///
/// # Errors
/// wrk isn't installed, or prints something other than its report.
pub fn ask(server: SocketAddr, asked: &RepeatedRequests<'_>, seconds: u64) -> io::Result<Answered> {
    let script = script(asked)?;
    let mut command = Command::new("wrk");
    command
        .args(["--threads", "1", "--latency"])
        .args(["--connections", &CONNECTIONS.to_string()])
        .args(["--duration", &format!("{seconds}s")])
        .stdin(Stdio::null());
    command.arg("--script").arg(script.path());

    if let Some(key) = asked.bearer {
        command.args(["--header", &format!("Authorization: Bearer {key}")]);
    }
    command.arg(format!("http://{server}/"));

    let output = command.output().map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            io::Error::other("wrk isn't installed; on Debian its package is called wrk")
        } else {
            error
        }
    })?;

    let text = String::from_utf8_lossy(&output.stdout);
    read(&text).ok_or_else(|| io::Error::other(format!("wrk printed no report:\n{text}")))
}

/// Writes the script with which wrk sends the requests in turn, each printed once. `[=[` and `]=]` quote bodies and paths, since none of
/// ours holds `]=]`.
fn script(asked: &RepeatedRequests<'_>) -> io::Result<tempfile::NamedTempFile> {
    let script = tempfile::Builder::new().suffix(".lua").tempfile()?;
    let mut lines = String::new();
    if let Some(body) = asked.post {
        lines.push_str(&format!(
            "wrk.method = 'POST'\nwrk.headers['Content-Type'] = 'application/json'\nwrk.body = [=[{body}]=]\n"
        ));
    }

    lines.push_str("local paths = {\n");
    for path in asked.paths {
        lines.push_str(&format!("[=[{path}]=],\n"));
    }

    lines.push_str(
        "}\nlocal requests, turn = {}, 0\n\
         function init()\n  for at, path in ipairs(paths) do requests[at] = wrk.format(nil, path) end\nend\n\
         function request()\n  turn = turn % #requests + 1\n  return requests[turn]\nend\n",
    );

    std::fs::write(script.path(), lines)?;
    Ok(script)
}

fn read(report: &str) -> Option<Answered> {
    let after = |name: &str| {
        let lines = report.lines().map(str::trim);
        lines
            .filter_map(|line| line.strip_prefix(name))
            .map(str::trim)
            .next()
    };

    let failed = after("Non-2xx or 3xx responses:").map_or(Some(0), |count| count.parse().ok())?;
    let broken: u64 = after("Socket errors:").map_or(0, |errors| {
        let numbers = errors.split(|c: char| !c.is_ascii_digit());
        numbers
            .filter_map(|number| number.parse::<u64>().ok())
            .sum()
    });

    Some(Answered {
        rate: after("Requests/sec:")?.parse().ok()?,
        p50_ms: milliseconds(after("50%")?)?,
        p99_ms: milliseconds(after("99%")?)?,
        failed: failed + broken,
    })
}

/// `431.00us`, `1.20ms`, `2.03s`.
fn milliseconds(text: &str) -> Option<f64> {
    let units = [("us", 1e-3), ("ms", 1.0), ("s", 1e3), ("m", 60e3)];
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
Running 2s test @ http://127.0.0.1:8080/
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   435.92us   87.60us   3.12ms   93.05%
    Req/Sec    72.01k     1.52k   74.18k    80.00%
  Latency Distribution
     50%  431.00us
     75%  447.00us
     90%  480.00us
     99%    1.20ms
  143329 requests in 2.00s, 17.63MB read
  Socket errors: connect 0, read 2, write 1, timeout 0
  Non-2xx or 3xx responses: 7
Requests/sec:  71642.91
Transfer/sec:      8.81MB
";

    #[test]
    fn a_report_is_read() {
        let answered = read(REPORT).expect("a report");
        assert_eq!(
            answered,
            Answered {
                rate: 71_642.91,
                p50_ms: 0.431,
                p99_ms: 1.2,
                failed: 10
            }
        );
        assert_eq!(read("unable to connect"), None);
    }
}
