//! What the encoder writes, the decoder reads; whatever else it reads, it ends without panicking.

use mpi_abi::*;
use proptest::prelude::*;

const PAYLOAD: usize = CHUNK - CHUNK_HEADER;

/// An entry that owns its lists.
#[derive(Clone, Debug)]
struct Owned {
    signature: Signature,
    bytes: u64,
    received: u64,
    gap: u64,
    duration: u64,
    error: i32,
    begun: u64,
    actual: Actual,
    found: bool,
    requests: Vec<RequestItem>,
    sent: Vec<u64>,
    got: Vec<u64>,
}

fn actual() -> impl Strategy<Value = Actual> {
    (any::<Option<i32>>(), any::<Option<i32>>(), any::<Option<u64>>())
        .prop_map(|(source, tag, bytes)| Actual { source, tag, bytes })
}

fn item() -> impl Strategy<Value = RequestItem> {
    let id = prop_oneof![0..20u64, any::<u64>()];
    let actual = prop_oneof![3 => Just(Actual::AS_POSTED), 1 => actual()];
    (id, 0..7u8, actual).prop_map(|(id, outcome, actual)| RequestItem {
        id,
        outcome: Outcome::from_number(outcome).unwrap(),
        actual,
    })
}

/// Few different values, so that the dictionary is hit as well as missed.
fn signature() -> impl Strategy<Value = Signature> {
    let int = || prop_oneof![8 => -3..5i32, 1 => any::<i32>()];
    let call = (0..Call::ALL.len()).prop_map(|number| Call::ALL[number]);
    (call, any::<bool>(), any::<u8>(), 0..32u8, 0..16u8, 0..4u32, int(), int(), int(), int())
        .prop_map(|(call, large, present, shape, op, object, peer, tag, source, source_tag)| {
            let field = |bit, value: i32| if present & bit != 0 { value } else { 0 };
            Signature {
                call,
                large,
                present,
                shape,
                op: if present & present::OP != 0 { op } else { 0 },
                object: if present & present::OBJECT != 0 { object } else { 0 },
                peer: field(present::PEER, peer),
                tag: field(present::TAG, tag),
                source: field(present::SOURCE, source),
                source_tag: field(present::SOURCE_TAG, source_tag),
            }
        })
}

fn sizes() -> impl Strategy<Value = Vec<u64>> {
    prop_oneof![
        Just(vec![]),
        Just(vec![8; 1000]),
        proptest::collection::vec(prop_oneof![0..3u64, 0..1u64 << 60], 0..20),
    ]
}

fn owned(signatures: Vec<Signature>) -> impl Strategy<Value = Owned> {
    let size = || prop_oneof![4 => 0..3u64, 1 => any::<u64>()];
    (
        proptest::sample::select(signatures),
        size(),
        size(),
        prop_oneof![0..1000u64, 0..1u64 << 40],
        prop_oneof![0..1000u64, 0..1u64 << 40],
        prop_oneof![9 => Just(0), 1 => any::<i32>()],
        prop_oneof![0..9u64, any::<u64>()],
        prop_oneof![Just(Actual::AS_POSTED), actual()],
        any::<bool>(),
        (proptest::collection::vec(item(), 0..30), sizes(), sizes()),
    )
        .prop_map(
            |(signature, bytes, received, gap, duration, error, begun, actual, found, lists)| {
                let (present, shape) = (signature.present, signature.shape);
                let part = |bit| shape & bit != 0;
                Owned {
                    signature,
                    bytes: if present & present::BYTES != 0 { bytes } else { 0 },
                    received: if present & present::RECEIVED != 0 { received } else { 0 },
                    gap,
                    duration,
                    error,
                    begun: if part(shape::BEGUN) { begun } else { 0 },
                    actual: if part(shape::OUTCOME) { actual } else { Actual::AS_POSTED },
                    found: !part(shape::OUTCOME) || found,
                    requests: if part(shape::REQUESTS) { lists.0 } else { vec![] },
                    sent: if part(shape::SENT) { lists.1 } else { vec![] },
                    got: if part(shape::RECEIVED) { lists.2 } else { vec![] },
                }
            },
        )
}

fn trace() -> impl Strategy<Value = Vec<Owned>> {
    proptest::collection::vec(signature(), 1..6)
        .prop_flat_map(|signatures| proptest::collection::vec(owned(signatures), 0..80))
}

fn expand(requests: Requests) -> Vec<RequestItem> {
    requests
        .flat_map(|run| {
            (0..u64::from(run.count)).map(move |index| RequestItem {
                id: run.first.wrapping_add(index),
                outcome: run.outcome,
                actual: run.actual,
            })
        })
        .collect()
}

fn expand_sizes(sizes: Option<Sizes>) -> Vec<u64> {
    sizes
        .into_iter()
        .flatten()
        .flat_map(|(size, count)| std::iter::repeat_n(size, count as usize))
        .collect()
}

proptest! {
    #[test]
    fn events_come_back_as_they_were(trace in trace(), base in 0..1u64 << 50) {
        let mut payload = vec![0; PAYLOAD];
        let mut encoder = Box::new(Encoder::new());
        encoder.restart(base);
        let mut now = base;
        let mut written = 0;
        for entry in &trace {
            let begin = now + entry.gap;
            let end = begin + entry.duration;
            let result = encoder.event(&mut payload, &Entry {
                signature: entry.signature,
                bytes: entry.bytes,
                received: entry.received,
                begin,
                end,
                error: entry.error,
                begun: entry.begun,
                actual: entry.actual,
                found: entry.found,
                requests: &entry.requests,
                sent: &entry.sent,
                got: &entry.got,
            });
            if result.is_err() {
                break;
            }
            now = end;
            written += 1;
        }
        let mut decoder = Box::new(Decoder::new(&payload[..encoder.used()], base));
        let mut now = base;
        for entry in &trace[..written] {
            let Some(Record::Event(event)) = decoder.next_record() else {
                panic!("no event: {:?}", decoder.error());
            };
            prop_assert_eq!(event.signature, entry.signature);
            prop_assert_eq!(event.bytes.unwrap_or(0), entry.bytes);
            prop_assert_eq!(event.received.unwrap_or(0), entry.received);
            prop_assert_eq!(event.begin, now + entry.gap);
            prop_assert_eq!(event.end, event.begin + entry.duration);
            prop_assert_eq!(event.error, entry.error);
            prop_assert_eq!(event.begun.unwrap_or(0), entry.begun);
            prop_assert_eq!(event.actual, entry.actual);
            prop_assert_eq!(event.found, entry.found);
            prop_assert_eq!(&expand(event.requests), &entry.requests);
            prop_assert_eq!(&expand_sizes(event.sent), &entry.sent);
            prop_assert_eq!(&expand_sizes(event.got), &entry.got);
            now = event.end;
        }
        prop_assert!(decoder.next_record().is_none());
        prop_assert_eq!(decoder.error(), None);
    }

    #[test]
    fn hostile_payloads_end(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let mut decoder = Box::new(Decoder::new(&bytes, u64::MAX - 1000));
        let mut records = 0;
        while let Some(record) = decoder.next_record() {
            records += 1;
            match record {
                Record::Event(event) => {
                    let _ = event.requests.count();
                    let _ = event.sent.map(Iterator::count);
                    let _ = (event.name(), event.op(), event.window());
                }
                Record::List { runs, .. } => {
                    let _ = runs.count();
                }
                _ => {}
            }
        }
        prop_assert!(records <= bytes.len());
    }

    #[test]
    fn damaged_payloads_end(trace in trace(), at in any::<prop::sample::Index>(), value: u8) {
        let mut payload = vec![0; PAYLOAD];
        let mut encoder = Box::new(Encoder::new());
        for entry in &trace {
            let _ = encoder.event(&mut payload, &Entry {
                signature: entry.signature,
                bytes: entry.bytes,
                received: entry.received,
                begin: encoder.last(),
                end: encoder.last() + entry.duration,
                error: 0,
                begun: entry.begun,
                actual: entry.actual,
                found: entry.found,
                requests: &entry.requests,
                sent: &entry.sent,
                got: &entry.got,
            });
        }
        let used = encoder.used().max(1);
        payload[at.index(used)] = value;
        let mut decoder = Box::new(Decoder::new(&payload[..used], 0));
        while let Some(record) = decoder.next_record() {
            if let Record::Event(event) = record {
                let _ = event.requests.count();
            }
        }
    }

    #[test]
    fn hostile_files_end(mut bytes in proptest::collection::vec(any::<u8>(), 0..9000), magic: bool) {
        if magic {
            bytes.iter_mut().zip(FILE_MAGIC).for_each(|(place, byte)| *place = byte);
            for at in (HEADER..bytes.len().saturating_sub(4)).step_by(CHUNK) {
                bytes[at..at + 4].copy_from_slice(&CHUNK_MAGIC.to_le_bytes());
            }
        }
        let _ = FileHeader::parse(&bytes);
        for chunk in chunks(&bytes) {
            let _ = chunk.is_sound();
        }
    }

    #[test]
    fn lists_come_back_in_parts(values in proptest::collection::vec(
        prop_oneof![0..4i32, any::<i32>()], 1..4000))
    {
        let mut payload = vec![0; PAYLOAD];
        let mut encoder = Box::new(Encoder::new());
        let mut offset = 0;
        let mut back = vec![];
        while offset < values.len() {
            encoder.restart(0);
            offset += encoder
                .list(&mut payload, 7, ListKind::Members, offset as u32, &values[offset..])
                .unwrap();
            let mut decoder = Box::new(Decoder::new(&payload[..encoder.used()], 0));
            let Some(Record::List { communicator: 7, kind: ListKind::Members, offset: from, runs }) =
                decoder.next_record() else { panic!() };
            prop_assert_eq!(from as usize, back.len());
            for run in runs {
                back.extend((0..run.count).map(|index| run.at(index)));
            }
        }
        prop_assert_eq!(back, values);
    }
}

#[test]
fn the_world_of_a_million_ranks_takes_a_few_bytes() {
    let values: Vec<i32> = (0..1_000_000).collect();
    let mut payload = vec![0; PAYLOAD];
    let mut encoder = Box::new(Encoder::new());
    assert_eq!(encoder.list(&mut payload, 0, ListKind::Members, 0, &values), Ok(1_000_000));
    assert!(encoder.used() < 16, "{} bytes", encoder.used());
}

#[test]
fn other_records_come_back_as_they_were() {
    let mut payload = vec![0; PAYLOAD];
    let mut encoder = Box::new(Encoder::new());
    encoder.restart(100);
    let def = CommunicatorDef {
        number: 5,
        key: u64::MAX,
        parent: Some(0),
        rank: 3,
        size: 8,
        remote_size: 0,
        topology: 2,
    };
    let item = |id| RequestItem { id, outcome: Outcome::Pending, actual: Actual::AS_POSTED };
    encoder.communicator(&mut payload, &def).unwrap();
    encoder.window(&mut payload, 1, 5).unwrap();
    encoder.region_name(&mut payload, 1, b"solve").unwrap();
    encoder.region(&mut payload, 1, true, 150).unwrap();
    encoder.switch(&mut payload, false, 160).unwrap();
    encoder.switch(&mut payload, true, 170).unwrap();
    encoder.region(&mut payload, 0, false, 180).unwrap();
    encoder.lost(&mut payload, 99).unwrap();
    encoder.more(&mut payload, &[item(4), item(5), item(9)]).unwrap();
    let mut decoder = Box::new(Decoder::new(&payload, 100));
    let mut next = || decoder.next_record();
    assert!(matches!(next(), Some(Record::Communicator(found)) if found == def));
    assert!(matches!(next(), Some(Record::Window { window: 1, communicator: 5 })));
    assert!(matches!(next(), Some(Record::RegionName { region: 1, name: b"solve" })));
    assert!(matches!(next(), Some(Record::RegionBegin { region: 1, at: 150 })));
    assert!(matches!(next(), Some(Record::Switch { on: false, at: 160 })));
    assert!(matches!(next(), Some(Record::Switch { on: true, at: 170 })));
    assert!(matches!(next(), Some(Record::RegionEnd { region: 0, at: 180 })));
    assert!(matches!(next(), Some(Record::Lost { events: 99 })));
    let Some(Record::More(requests)) = next() else { panic!() };
    assert_eq!(expand(requests).iter().map(|item| item.id).collect::<Vec<_>>(), [4, 5, 9]);
    assert!(next().is_none(), "zeros end the payload");
    assert_eq!(decoder.error(), None);
}

/// A test of these requests that fails, from `begin` to `end`.
fn failing(call: Call, begin: u64, end: u64, requests: &[RequestItem]) -> Entry<'_> {
    let shape = shape::OUTCOME | shape::REQUESTS;
    let signature = Signature { shape, ..Signature::of(call) };
    Entry { found: false, requests, ..Entry::plain(signature, begin, end) }
}

#[test]
fn tests_made_again_share_the_time_in_turn() {
    let item = |id| RequestItem { id, outcome: Outcome::Pending, actual: Actual::AS_POSTED };
    let (one, two) = ([item(4)], [item(7), item(9)]);
    let mut payload = vec![0; PAYLOAD];
    let mut encoder = Box::new(Encoder::new());
    encoder.event(&mut payload, &failing(Call::Test, 100, 110, &one)).unwrap();
    encoder.event(&mut payload, &failing(Call::Testany, 120, 130, &two)).unwrap();
    let before = encoder.used();
    let place = encoder.repeat(&mut payload, 2).unwrap();
    assert_eq!(encoder.used(), before + REPEAT);
    for (number, value) in [5u32, 1_000, 500].into_iter().enumerate() {
        payload[place + 4 * number..][..4].copy_from_slice(&value.to_le_bytes());
    }
    encoder.repeated(1_000);
    assert_eq!(encoder.last(), 1_130);
    encoder.event(&mut payload, &failing(Call::Test, 1_140, 1_150, &one)).unwrap();
    // One that was begun and did not happen.
    encoder.repeat(&mut payload, 1).unwrap();
    encoder.event(&mut payload, &failing(Call::Test, 1_160, 1_170, &one)).unwrap();
    // The decoder reads no more than was written before a rank was killed.
    let mut decoder = Box::new(Decoder::new(&payload[..encoder.used()], 0));
    let mut records = vec![];
    while let Some(record) = decoder.next_record() {
        let (event, times, inside) = match record {
            Record::Event(event) => (event, 0, 0),
            Record::Repeat { event, times, inside } => (event, times, inside),
            other => panic!("{other:?}"),
        };
        let requests: Vec<u64> = expand(event.requests).iter().map(|item| item.id).collect();
        assert!(!event.found);
        records.push((event.call(), event.begin, event.end, times, inside, requests));
    }
    assert_eq!(decoder.error(), None);
    let expected = [
        (Call::Test, 100, 110, 0, 0, vec![4]),
        (Call::Testany, 120, 130, 0, 0, vec![7, 9]),
        (Call::Test, 130, 730, 3, 300, vec![4]),
        (Call::Testany, 730, 1_130, 2, 200, vec![7, 9]),
        (Call::Test, 1_140, 1_150, 0, 0, vec![4]),
        (Call::Test, 1_160, 1_170, 0, 0, vec![4]),
    ];
    assert_eq!(records, expected);
}

#[test]
fn repetitions_of_what_is_not_there_are_damage() {
    let item = [RequestItem { id: 4, outcome: Outcome::Pending, actual: Actual::AS_POSTED }];
    let barrier = Entry::plain(Signature::of(Call::Barrier), 0, 1);
    let test = failing(Call::Test, 1, 2, &item);
    for (events, tests) in [
        (vec![], 1),
        (vec![barrier], 1),
        (vec![test], 2),
        (vec![test, barrier], 1),
        (vec![test], 0),
    ] {
        let mut payload = vec![0; PAYLOAD];
        let mut encoder = Box::new(Encoder::new());
        for event in &events {
            encoder.event(&mut payload, event).unwrap();
        }
        let at = encoder.used();
        encoder.repeat(&mut payload, tests).unwrap();
        let mut decoder = Box::new(Decoder::new(&payload[..encoder.used()], 0));
        while decoder.next_record().is_some() {}
        assert_eq!(decoder.error(), Some(DecodeError { at }), "{} events, {tests}", events.len());
    }
}

#[test]
fn a_repeated_send_takes_three_bytes_and_its_times() {
    let mut payload = vec![0; PAYLOAD];
    let mut encoder = Box::new(Encoder::new());
    let mut signature = Signature::of(Call::Isend);
    signature.present = present::OBJECT | present::PEER | present::TAG | present::BYTES;
    signature.shape = shape::BEGUN;
    let mut entry = Entry {
        signature,
        bytes: 1 << 20,
        received: 0,
        begin: 10,
        end: 20,
        error: 0,
        begun: 0,
        actual: Actual::AS_POSTED,
        found: true,
        requests: &[],
        sent: &[],
        got: &[],
    };
    encoder.event(&mut payload, &entry).unwrap();
    let first = encoder.used();
    entry.begun = 1;
    entry.begin += 20;
    entry.end += 20;
    encoder.event(&mut payload, &entry).unwrap();
    assert_eq!(encoder.used() - first, 4, "signature, gap, duration, request");
}

#[test]
fn the_same_list_again_takes_one_byte() {
    let mut payload = vec![0; PAYLOAD];
    let mut encoder = Box::new(Encoder::new());
    let mut signature = Signature::of(Call::Alltoallv);
    signature.shape = shape::SENT;
    let sent: Vec<u64> = (0..100).map(|index| index * index).collect();
    let entry = Entry { sent: &sent, ..Entry::plain(signature, 0, 0) };
    encoder.event(&mut payload, &entry).unwrap();
    let first = encoder.used();
    encoder.event(&mut payload, &entry).unwrap();
    assert_eq!(encoder.used() - first, 4);
    let mut decoder = Box::new(Decoder::new(&payload[..encoder.used()], 0));
    for _ in 0..2 {
        let Some(Record::Event(event)) = decoder.next_record() else { panic!() };
        assert_eq!(expand_sizes(event.sent), sent);
    }
}

#[test]
fn a_record_that_does_not_fit_leaves_the_payload_readable() {
    let mut payload = vec![0; 64];
    let mut encoder = Box::new(Encoder::new());
    let mut written = 0;
    while encoder.region_name(&mut payload, written, b"some name").is_ok() {
        written += 1;
    }
    let mut decoder = Box::new(Decoder::new(&payload[..encoder.used()], 0));
    let mut read = 0;
    while decoder.next_record().is_some() {
        read += 1;
    }
    assert_eq!((read, decoder.error()), (written, None));
}
