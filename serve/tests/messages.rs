//! The messages of Envoy's protocol are those of `proto/`. With `RECORD_MESSAGES` set, they are
//! generated anew.

use std::path::Path;
use std::{env, fs};

use prost::Message;
use prost_types::FileDescriptorSet;
use prost_types::field_descriptor_proto::Type;

const DESCRIPTORS: &str = "src/grpc/messages/descriptors.bin";
const GENERATED: &str = "src/grpc/messages/generated.rs";

/// Texts of a request are bytes here, which have the same form: a proxy fills them with what its
/// clients have sent, also if that is not UTF-8, and a message that cannot be read would be an
/// error, at which Envoy lets the request in.
fn with_bytes_in_place_of_texts(descriptors: &FileDescriptorSet) -> FileDescriptorSet {
    let mut descriptors = descriptors.clone();
    for file in &mut descriptors.file {
        let requests = file.message_type.iter_mut().filter(|message| {
            ["RateLimitRequest", "RateLimitDescriptor"].contains(&message.name())
        });
        for message in requests {
            let nested = message.nested_type.iter_mut();
            let fields = nested
                .flat_map(|it| &mut it.field)
                .chain(&mut message.field);
            for field in fields.filter(|it| it.r#type() == Type::String) {
                field.set_type(Type::Bytes);
            }
        }
    }
    descriptors
}

fn generated(descriptors: &FileDescriptorSet) -> String {
    let folder = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .build_client(false)
        .build_server(false)
        .build_transport(false)
        .out_dir(folder.path())
        .include_file("all.rs")
        .compile_fds(with_bytes_in_place_of_texts(descriptors))
        .unwrap();
    let all = fs::read_to_string(folder.path().join("all.rs")).unwrap();
    let mut text = String::new();
    for line in all.lines() {
        let included = line
            .trim()
            .strip_prefix("include!(")
            .and_then(|it| it.strip_suffix(");"));
        match included {
            Some(file) => {
                let file = file.trim_matches('"');
                text += &fs::read_to_string(folder.path().join(file)).unwrap();
            }
            None => text += &format!("{line}\n"),
        }
    }
    text
}

#[test]
fn the_generated_messages_are_those_of_the_protocol() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = "envoy/service/ratelimit/v3/rls.proto";
    let descriptors = protox::compile([file], [folder.join("proto")]).unwrap();
    let expected = [
        (DESCRIPTORS, descriptors.encode_to_vec()),
        (GENERATED, generated(&descriptors).into_bytes()),
    ];
    for (file, expected) in expected {
        let file = folder.join(file);
        if env::var_os("RECORD_MESSAGES").is_some() {
            fs::write(&file, &expected).unwrap();
        }
        assert!(
            fs::read(&file).unwrap() == expected,
            "{} is out of date",
            file.display()
        );
    }
}
