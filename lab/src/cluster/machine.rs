//! A whole machine under QEMU, and commands in it through the guest agent.

use std::{
    fs,
    io::{BufRead, BufReader, ErrorKind, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::root::Root;
use crate::vm::tools;

/// Wall clocks of the machines, hours apart; 1 and 2 are their numbers.
const CLOCKS: [&str; 2] = ["2026-11-20T07:00:00", "2026-11-19T22:00:00"];

/// Numbers of connections: no two are alike.
static QUESTIONS: AtomicU64 = AtomicU64::new(1);

/// Time between two looks at a command.
const PAUSE: Duration = Duration::from_secs(1);
/// An answer that takes longer comes from a machine that is suspended, restarting or hanging: the command
/// is looked for again.
const ANSWER: Duration = Duration::from_secs(20);

pub struct Machine {
    child: Child,
    agent: PathBuf,
    pub console: PathBuf,
}

/// A command that ended in a machine.
pub struct Ended {
    /// None if a signal ended it.
    pub status: Option<i64>,
    /// Standard output.
    pub output: String,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Machine {
    /// Starts a machine. Its disk is discarded when it ends. Its only network is a cable to the other one.
    pub fn start(
        place: &Path,
        qemu: &Path,
        root: &Root,
        payload: &Path,
        number: usize,
    ) -> Result<Machine> {
        let file = |name: String| place.join(name);
        let (agent, console) =
            (file(format!("agent{number}")), file(format!("console{number}.log")));
        let cable = |number: usize| file(format!("cable{number}"));
        // For looking at a machine that hangs.
        let monitor = file(format!("monitor{number}"));
        for path in [&agent, &monitor, &cable(number)] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        let mut command = tools::qemu_command(qemu, "qemu-system-x86_64")?;
        command.args(["-M", "q35", "-cpu", "max", "-accel", "tcg,thread=multi", "-smp", "2"]);
        command.args(["-m", "2G", "-nodefaults", "-no-user-config", "-display", "none"]);
        command.arg("-kernel").arg(&root.kernel).arg("-initrd").arg(&root.initrd);
        // Mitigations cost much on an emulated processor, and protect nothing here.
        command.arg("-append").arg(format!(
            "root=/dev/vda rw console=ttyS0 quiet net.ifnames=0 mitigations=off panic=-1 \
             systemd.hostname=node{number}"
        ));
        command.arg("-serial").arg(format!("file:{}", console.display()));
        command.arg("-qmp").arg(format!("unix:{},server=on,wait=off", monitor.display()));
        command.args(["-rtc", &format!("base={},clock=host", CLOCKS[number - 1])]);
        let drive = |path: &Path, more: &str| {
            format!("file={},format=raw,if=virtio,{more}", path.display())
        };
        command.arg("-drive").arg(drive(&root.image, "snapshot=on"));
        command.arg("-drive").arg(drive(payload, "readonly=on"));
        command.args(["-device", "virtio-serial", "-chardev"]);
        command
            .arg(format!("socket,path={},server=on,wait=off,id=agent", agent.display()))
            .args(["-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0"]);
        command.arg("-netdev").arg(format!(
            "dgram,id=cable,local.type=unix,local.path={},remote.type=unix,remote.path={}",
            cable(number).display(),
            cable(3 - number).display()
        ));
        command
            .arg("-device")
            .arg(format!("virtio-net-pci,netdev=cable,mac=52:54:00:00:00:0{number},romfile="));
        command.args(["-object", "rng-random,filename=/dev/urandom,id=random"]);
        command.args(["-device", "virtio-rng-pci,rng=random"]);
        // What a machine writes to its disk is in an unnamed file here.
        command.env("TMPDIR", place).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().context("cannot start QEMU")?;
        Ok(Machine { child, agent, console })
    }

    /// Waits until commands can be run.
    pub fn wait_until_up(&mut self, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("QEMU ended ({status})");
            }
            if Agent::connect(&self.agent).is_ok() {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("the machine did not start within {} s", limit.as_secs());
            }
            thread::sleep(PAUSE);
        }
    }

    /// Runs a shell script to its end.
    pub fn shell(&mut self, script: &str, limit: Duration) -> Result<Ended> {
        self.shell_with(script, b"", limit)
    }

    /// The same, with this on its standard input.
    pub fn shell_with(&mut self, script: &str, input: &[u8], limit: Duration) -> Result<Ended> {
        let end = Instant::now() + limit;
        let mut agent = Agent::connect(&self.agent)?;
        let started = agent.ask(
            "guest-exec",
            &json!({
                "path": "/bin/bash",
                "arg": ["-c", script],
                "input-data": STANDARD.encode(input),
                "capture-output": true,
            }),
        )?;
        let process = started["pid"].clone();
        loop {
            thread::sleep(PAUSE);
            let state = match agent.ask("guest-exec-status", &json!({"pid": process})) {
                Ok(state) => state,
                Err(error) if Instant::now() > end => return Err(error),
                // Its answers were cut off, by a suspend for example.
                Err(_) => {
                    if let Ok(again) = Agent::connect(&self.agent) {
                        agent = again;
                    }
                    continue;
                }
            };
            if state["exited"] == true {
                let text = |key: &str| {
                    let bytes = STANDARD.decode(state[key].as_str().unwrap_or_default());
                    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
                };
                return Ok(Ended { status: state["exitcode"].as_i64(), output: text("out-data") });
            }
            if Instant::now() > end {
                bail!("not finished after {} s", limit.as_secs());
            }
        }
    }
}

/// A connection to the agent in a machine.
struct Agent {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Agent {
    /// Succeeds if the agent answers.
    fn connect(path: &Path) -> Result<Agent> {
        let stream = UnixStream::connect(path).context("cannot reach the machine")?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        let mut agent = Agent { lines: BufReader::new(stream.try_clone()?), stream };
        // Answers to an earlier connection may still be on their way; the byte ends an unfinished question.
        let number = QUESTIONS.fetch_add(1, Ordering::Relaxed);
        let question = json!({"execute": "guest-sync-delimited", "arguments": {"id": number}});
        agent.stream.write_all(b"\xff")?;
        writeln!(agent.stream, "{question}")?;
        let end = Instant::now() + ANSWER;
        while Instant::now() < end {
            let mut line = Vec::new();
            agent.lines.read_until(b'\n', &mut line).context("the machine does not answer")?;
            let start = line.iter().rposition(|&byte| byte == 0xff).map_or(0, |place| place + 1);
            let answer: Option<Value> = serde_json::from_slice(&line[start..]).ok();
            if answer.is_some_and(|answer| answer["return"] == number) {
                return Ok(agent);
            }
        }
        bail!("the machine does not answer")
    }

    fn ask(&mut self, question: &str, arguments: &Value) -> Result<Value> {
        writeln!(self.stream, "{}", json!({"execute": question, "arguments": arguments}))?;
        let mut line = String::new();
        self.lines.read_line(&mut line).context("the machine does not answer")?;
        let answer: Value =
            serde_json::from_str(&line).context("the machine's answer is not JSON")?;
        match &answer["return"] {
            Value::Null => bail!("{question}: {}", answer["error"]["desc"]),
            value => Ok(value.clone()),
        }
    }
}
