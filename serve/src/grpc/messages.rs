//! The messages of Envoy's protocol, generated from `proto/` by `tests/messages.rs`. The texts of a
//! request are bytes, because a proxy copies into them whatever its clients have sent, even if it
//! is not UTF-8: with strings, such a message could not be decoded, and Envoy lets requests in when
//! it gets an error.

mod generated {
    #![allow(
        missing_docs,
        clippy::all,
        clippy::pedantic,
        unreachable_pub,
        reason = "generated"
    )]

    include!("messages/generated.rs");
}

pub(crate) use generated::envoy::config::core::v3::HeaderValue;
pub(crate) use generated::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
pub(crate) use generated::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
pub(crate) use generated::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
pub(crate) use generated::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
pub(crate) use generated::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
pub(crate) use prost_types::Duration;

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    // The bytes are written by hand from the specification of the protocol.
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
