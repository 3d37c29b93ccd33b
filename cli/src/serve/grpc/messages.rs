//! The messages of Envoy's protocol, as far as they are used:
//! `envoy/service/ratelimit/v3/rls.proto` and
//! `envoy/extensions/common/ratelimit/v3/ratelimit.proto`. Fields that are left out are skipped
//! when they are read.

use prost::{Enumeration, Message};

/// Texts are bytes, as a proxy fills them with what its clients have sent, also if that is not
/// UTF-8: a message that cannot be read would be an error, at which Envoy lets the request in.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RateLimitRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) domain: Vec<u8>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) descriptors: Vec<RateLimitDescriptor>,
    /// 0 is 1.
    #[prost(uint32, tag = "3")]
    pub(crate) hits_addend: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RateLimitDescriptor {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<Entry>,
    /// A `google.protobuf.UInt64Value`: in the place of that of the request.
    #[prost(message, optional, tag = "3")]
    pub(crate) hits_addend: Option<u64>,
    /// The hits are given back: from Envoy 1.38 on.
    #[prost(bool, tag = "4")]
    pub(crate) is_negative_hits: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Entry {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RateLimitResponse {
    #[prost(enumeration = "Code", tag = "1")]
    pub(crate) overall_code: i32,
    /// One for each descriptor.
    #[prost(message, repeated, tag = "2")]
    pub(crate) statuses: Vec<DescriptorStatus>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) response_headers_to_add: Vec<HeaderValue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum Code {
    Unknown = 0,
    Ok = 1,
    OverLimit = 2,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DescriptorStatus {
    #[prost(enumeration = "Code", tag = "1")]
    pub(crate) code: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) current_limit: Option<RateLimit>,
    #[prost(uint32, tag = "3")]
    pub(crate) limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub(crate) duration_until_reset: Option<Duration>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RateLimit {
    #[prost(uint32, tag = "1")]
    pub(crate) requests_per_unit: u32,
    #[prost(enumeration = "Unit", tag = "2")]
    pub(crate) unit: i32,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(crate) enum Unit {
    Unknown = 0,
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
    Week = 7,
}

/// `google.protobuf.Duration`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Duration {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

/// `envoy.config.core.v3.HeaderValue`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeaderValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    // Written by hand from the documents of the protocol.
    #[test]
    fn a_request_is_read_as_the_protocol_has_it() {
        let mut bytes = b"\x0a\x04edge".to_vec(); // 1: domain
        bytes.extend(b"\x12\x17"); // 2: a descriptor
        bytes.extend(b"\x0a\x0d\x0a\x04user\x12\x05alice"); // its 1: an entry of 1 and 2
        bytes.extend(b"\x12\x00"); // its 2: an override, which is not read
        bytes.extend(b"\x1a\x02\x08\x05"); // its 3: hits_addend 5
        bytes.extend(b"\x20\x01"); // its 4: they are negative
        bytes.extend(b"\x18\x02"); // 3: hits_addend 2
        bytes.extend(b"\x7a\x01x"); // 15: of a later version
        let entry = Entry {
            key: b"user".to_vec(),
            value: b"alice".to_vec(),
        };
        let descriptor = RateLimitDescriptor {
            entries: vec![entry],
            hits_addend: Some(5),
            is_negative_hits: true,
        };
        let request = RateLimitRequest {
            domain: b"edge".to_vec(),
            descriptors: vec![descriptor],
            hits_addend: 2,
        };
        assert_eq!(RateLimitRequest::decode(&*bytes), Ok(request));
    }

    #[test]
    fn a_response_is_written_as_the_protocol_has_it() {
        let response = RateLimitResponse {
            overall_code: Code::OverLimit.into(),
            statuses: vec![DescriptorStatus {
                code: Code::OverLimit.into(),
                current_limit: Some(RateLimit {
                    requests_per_unit: 3,
                    unit: Unit::Hour.into(),
                    name: "a".to_owned(),
                }),
                limit_remaining: 1,
                duration_until_reset: Some(Duration {
                    seconds: 7,
                    nanos: 9,
                }),
            }],
            response_headers_to_add: vec![HeaderValue {
                key: "k".to_owned(),
                value: "v".to_owned(),
            }],
        };
        let mut bytes = b"\x08\x02\x12\x13\x08\x02".to_vec(); // 1: code, 2: a status, its 1: code
        bytes.extend(b"\x12\x07\x08\x03\x10\x03\x1a\x01a"); // its 2: the limit
        bytes.extend(b"\x18\x01\x22\x04\x08\x07\x10\x09"); // its 3 and 4
        bytes.extend(b"\x1a\x06\x0a\x01k\x12\x01v"); // 3: a header field
        assert_eq!(response.encode_to_vec(), bytes);
    }
}
