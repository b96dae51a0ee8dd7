//! Packets over the loopback device: each one raises a NET_RX softirq.

use std::{
    net::UdpSocket,
    time::{Duration, Instant},
};

use anyhow::Result;
use serde_json::json;

use crate::os;

pub(crate) fn run(cpu: u32, seconds: f64, pause_us: u64) -> Result<()> {
    os::pin(cpu)?;
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    sender.connect(receiver.local_addr()?)?;
    receiver.set_nonblocking(true)?;
    os::name("netgen");
    let mut packet = [0u8; 1000];
    let start = Instant::now();
    let mut packets = 0u64;
    while start.elapsed().as_secs_f64() < seconds {
        sender.send(&packet)?;
        packets += 1;
        while receiver.recv(&mut packet).is_ok() {}
        if pause_us > 0 {
            os::spin(Duration::from_micros(pause_us));
        }
    }
    println!("{}", json!({ "packets": packets }));
    Ok(())
}
