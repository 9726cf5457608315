//! The errors of brokers, by their numbers: <https://kafka.apache.org/protocol.html#protocol_error_codes>.

use std::fmt;

/// An error of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i16);

impl Code {
    pub(crate) const NONE: Code = Code(0);
    pub(crate) const UNKNOWN_TOPIC_OR_PARTITION: Code = Code(3);
    pub(crate) const UNSUPPORTED_SASL_MECHANISM: Code = Code(33);
    pub(crate) const ILLEGAL_SASL_STATE: Code = Code(34);
    const MESSAGE_TOO_LARGE: Code = Code(10);
    pub(crate) const OFFSET_OUT_OF_RANGE: Code = Code(1);
    const LOADING: Code = Code(14);
    const NOT_AVAILABLE: Code = Code(15);
    pub(crate) const OUT_OF_ORDER_SEQUENCE_NUMBER: Code = Code(45);
    pub(crate) const DUPLICATE_SEQUENCE_NUMBER: Code = Code(46);
    const INVALID_PRODUCER_EPOCH: Code = Code(47);
    const CONCURRENT_TRANSACTIONS: Code = Code(51);
    pub(crate) const OPERATION_NOT_ATTEMPTED: Code = Code(55);
    const UNKNOWN_PRODUCER_ID: Code = Code(59);
    const PRODUCER_FENCED: Code = Code(90);

    /// Whether the same request succeeds in a moment.
    pub(crate) fn is_passing(self) -> bool {
        [Code::LOADING, Code::NOT_AVAILABLE, Code::CONCURRENT_TRANSACTIONS].contains(&self)
    }

    /// Whether the broker does not know the producer's numbers any more. Shipments in flight are then sent with the
    /// numbers of another producer, and may be stored twice.
    pub(crate) fn is_new_producer_needed(self) -> bool {
        let all = [
            Code::OUT_OF_ORDER_SEQUENCE_NUMBER,
            Code::INVALID_PRODUCER_EPOCH,
            Code::UNKNOWN_PRODUCER_ID,
        ];
        all.contains(&self)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            0 => "NONE",
            1 => "OFFSET_OUT_OF_RANGE",
            2 => "CORRUPT_MESSAGE",
            3 => "UNKNOWN_TOPIC_OR_PARTITION",
            5 => "LEADER_NOT_AVAILABLE",
            6 => "NOT_LEADER_OR_FOLLOWER",
            7 => "REQUEST_TIMED_OUT",
            10 => "MESSAGE_TOO_LARGE",
            14 => "COORDINATOR_LOAD_IN_PROGRESS",
            15 => "COORDINATOR_NOT_AVAILABLE",
            16 => "NOT_COORDINATOR",
            17 => "INVALID_TOPIC_EXCEPTION",
            19 => "NOT_ENOUGH_REPLICAS",
            20 => "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
            29 => "TOPIC_AUTHORIZATION_FAILED",
            31 => "CLUSTER_AUTHORIZATION_FAILED",
            32 => "INVALID_TIMESTAMP",
            33 => "UNSUPPORTED_SASL_MECHANISM",
            34 => "ILLEGAL_SASL_STATE",
            44 => "POLICY_VIOLATION",
            45 => "OUT_OF_ORDER_SEQUENCE_NUMBER",
            46 => "DUPLICATE_SEQUENCE_NUMBER",
            47 => "INVALID_PRODUCER_EPOCH",
            48 => "INVALID_TXN_STATE",
            49 => "INVALID_PRODUCER_ID_MAPPING",
            50 => "INVALID_TRANSACTION_TIMEOUT",
            51 => "CONCURRENT_TRANSACTIONS",
            53 => "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            56 => "KAFKA_STORAGE_ERROR",
            58 => "SASL_AUTHENTICATION_FAILED",
            59 => "UNKNOWN_PRODUCER_ID",
            76 => "UNSUPPORTED_COMPRESSION_TYPE",
            87 => "INVALID_RECORD",
            90 => "PRODUCER_FENCED",
            other => return write!(f, "error {other}"),
        };
        f.write_str(name)?;
        match *self {
            Code::MESSAGE_TOO_LARGE => f.write_str(
                ": raise max.message.bytes of the topic to 1 MiB, and to --max-line and 64 KiB if that is more",
            ),
            Code::PRODUCER_FENCED | Code::INVALID_PRODUCER_EPOCH => f.write_str(
                ": another daemon may have taken over; if it has a copy of this directory, stop it and remove its \
                 directory.id and ship.cursor",
            ),
            _ => Ok(()),
        }
    }
}
