//! Errors of addresses and of stores, each in one line.

use std::io;

/// Why a file of a web server cannot be read.
pub const NO_RANGES: &str =
    "the server does not send ranges of a file: download the file, or use a server like nginx";

/// Returns an error of an address.
pub fn wrong(text: &str, why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{text}: {why}"))
}

/// Returns what an error of a store means, in one line.
pub fn failed(text: &str, error: object_store::Error) -> io::Error {
    use io::ErrorKind;
    use object_store::Error;
    let (kind, why) = match &error {
        Error::NotFound { .. } => (ErrorKind::NotFound, "no such object".to_owned()),
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => (
            ErrorKind::PermissionDenied,
            "access denied: check the credentials in the environment".to_owned(),
        ),
        Error::NotSupported { .. } => (ErrorKind::Unsupported, NO_RANGES.to_owned()),
        other => {
            let mut last: &dyn std::error::Error = other;
            while let Some(source) = last.source() {
                last = source;
            }
            let mut why = last.to_string();
            if why.is_empty() {
                why = other.to_string();
            }
            let line = why.split_whitespace().collect::<Vec<_>>().join(" ");
            let line = advice(text, other)
                .or_else(|| answer(&line))
                .unwrap_or(line);
            (ErrorKind::Other, line.chars().take(300).collect())
        }
    };
    io::Error::new(kind, format!("{text}: {why}"))
}

/// Returns the message in an answer of XML.
fn answer(line: &str) -> Option<String> {
    let field = |name: &str| {
        let (_, rest) = line.split_once(&format!("<{name}>"))?;
        Some(rest.split_once("</")?.0)
    };
    Some(format!("{} ({})", field("Message")?, field("Code")?))
}

/// Returns what to do about a request that was not sent for lack of credentials. The client looks for credentials last at the metadata
/// server of a virtual machine, so an error that names this server means that no other source has them.
fn advice(text: &str, error: &object_store::Error) -> Option<String> {
    const METADATA: [&str; 2] = ["169.254.169.254", "metadata.google.internal"];
    let first: &dyn std::error::Error = error;
    let mut chain = std::iter::successors(Some(first), |error| error.source());
    let is_metadata = |line: String| METADATA.iter().any(|host| line.contains(host));
    if !chain.any(|error| is_metadata(error.to_string())) {
        return None;
    }
    let names = match text.split(':').next()? {
        "s3" => "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        "gs" => "GOOGLE_APPLICATION_CREDENTIALS",
        "az" => "AZURE_STORAGE_CONNECTION_STRING",
        _ => return None,
    };
    Some(format!("no credentials: set {names}"))
}

#[test]
fn errors_of_stores_are_one_sentence() {
    let said = |source: &str| {
        let source = source.into();
        let error = object_store::Error::Generic {
            store: "S3",
            source,
        };
        failed("s3://b/x", error).to_string()
    };
    let answer =
        "404: <Error><Code>NoSuchBucket</Code><Message>The bucket does not exist</Message></Error>";
    assert_eq!(
        said(answer),
        "s3://b/x: The bucket does not exist (NoSuchBucket)"
    );
    assert_eq!(
        said("error sending a request to http://169.254.169.254/latest/api/token"),
        "s3://b/x: no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    );
    for cut in ["<Message>x", "<Code>x</Code>", "x"] {
        assert_eq!(said(cut), format!("s3://b/x: {cut}"));
    }
}
