//! Bytes read as a trace, and as the traces of other programs: no reader panics. The reader of traces needs no more
//! memory than a frame has. What it reads can be written, and is read again as it was.

#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use ringwise_trace::{AnyReader, End, Header, Reader, Record, Writer, format};

fuzz_target!(|bytes: &[u8]| {
    drop(Reader::new(bytes).map(|reader| reader.for_each(drop)));
    // As the formats of other programs, which begin so.
    for start in [&b""[..], b"\x07tae", b"fio version 3 iolog\n"] {
        let other = Cursor::new([start, bytes].concat());
        drop(AnyReader::new(other).map(|reader| reader.for_each(drop)));
    }
    // Almost no bytes have a checksum that is right, so they are also read as the payload of a frame.
    let payload = [&[1][..], bytes].concat();
    let len = u32::try_from(payload.len()).unwrap().to_le_bytes();
    let sum = crc32fast::hash(&[&len[..], &payload].concat()).to_le_bytes();
    let start = Writer::new(Vec::new(), &Header::default()).unwrap().into_inner();
    let trace = [&start[..], &len, &sum, &payload].concat();
    let records: Vec<Record> = Reader::new(&trace[..]).unwrap().map_while(Result::ok).collect();
    let mut writer = Writer::new(Vec::new(), &Header::default()).unwrap();
    for record in &records {
        assert!(bytes.len() > format::PAYLOAD_BYTES_MAX || writer.record(record).is_ok());
    }
    let again = writer.finish(&End::default()).unwrap();
    let mut again: Vec<Record> = Reader::new(&again[..]).unwrap().map(Result::unwrap).collect();
    assert!(matches!(again.pop(), Some(Record::End(_))));
    assert_eq!(again, records);
});
