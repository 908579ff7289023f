//! Files that a command finds when it starts, and those that are kept when it ends.

use std::path::Path;

use runyard_wire::{Json, TaskRequest};
use serde_json::{Map, Value, json};

use crate::client::Client;
use crate::error::{Error, Result};

#[derive(clap::Args, Default)]
#[group(skip)]
pub struct FileOptions {
    /// A file in its working directory: text, @FILE, or a URL; may be repeated
    #[arg(long, value_name = "PATH=SOURCE", conflicts_with_all = ["http", "kind"], help_heading = "Files")]
    file: Vec<String>,
    /// A zip archive to unpack there: @FILE or a URL; may be repeated
    #[arg(long, value_name = "DIR=SOURCE", conflicts_with_all = ["http", "kind"], help_heading = "Files")]
    unzip: Vec<String>,
    /// Files to keep as artifacts: a pattern such as 'out/**'; may be repeated
    #[arg(long, value_name = "PATTERN", conflicts_with_all = ["http", "kind"], help_heading = "Files")]
    output: Vec<String>,
    /// At the end its working directory is: remove, keep or keepOnFailure
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["http", "kind"], help_heading = "Files")]
    work_dir: Option<String>,
}

impl FileOptions {
    /// Adds what was asked for to the payload of a process. Files of this machine are handed in first.
    pub async fn add_to(self, client: &Client, request: &mut TaskRequest) -> Result<()> {
        let mut files = Vec::new();
        for argument in &self.file {
            files.push(Source::parse("--file", argument)?.into_file(client, false).await?);
        }
        for argument in &self.unzip {
            files.push(Source::parse("--unzip", argument)?.into_file(client, true).await?);
        }
        let fields = [
            ("files", (!files.is_empty()).then(|| json!(files))),
            ("outputs", (!self.output.is_empty()).then(|| json!(self.output))),
            ("workDir", self.work_dir.map(Value::from)),
        ];
        let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let fields: Map<String, Value> = fields.collect();
        if !fields.is_empty() {
            let payload = request.payload.as_ref().and_then(|payload| payload.read::<Map<String, Value>>().ok());
            request.payload = Some(Json::from(Value::Object(payload.into_iter().flatten().chain(fields).collect())));
        }
        Ok(())
    }
}

/// Where a file comes from.
#[derive(PartialEq, Eq, Debug)]
struct Source<'a> {
    path: &'a str,
    from: From<'a>,
}

#[derive(PartialEq, Eq, Debug)]
enum From<'a> {
    Here(&'a Path),
    Url(&'a str),
    Text(&'a str),
}

impl<'a> Source<'a> {
    fn parse(flag: &str, argument: &'a str) -> Result<Source<'a>> {
        let Some((path, source)) = argument.split_once('=').filter(|(path, _)| !path.is_empty()) else {
            return Err(Error::usage(format!("{flag}: `{argument}` looks not like PATH=SOURCE")));
        };
        let from = match source.strip_prefix('@') {
            Some(file) => From::Here(Path::new(file)),
            None if source.starts_with("http://") || source.starts_with("https://") => From::Url(source),
            None => From::Text(source),
        };
        Ok(Source { path, from })
    }

    async fn into_file(self, client: &Client, unzip: bool) -> Result<Value> {
        let (name, value) = match self.from {
            From::Here(file) => ("upload", json!(client.upload(file).await?.read()?.id)),
            From::Url(url) => ("url", json!(url)),
            From::Text(text) => ("inline", json!(text)),
        };
        let mut file = json!({ "path": self.path });
        file[name] = value;
        if unzip {
            file["unzip"] = json!(true);
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_text_a_file_or_an_address() {
        let from = |argument| Source::parse("--file", argument).unwrap();
        assert_eq!(from("a/b=x=y"), Source { path: "a/b", from: From::Text("x=y") });
        assert_eq!(from("a="), Source { path: "a", from: From::Text("") });
        assert_eq!(from("a=@b=c"), Source { path: "a", from: From::Here(Path::new("b=c")) });
        assert_eq!(from("a=https://x/?q=1"), Source { path: "a", from: From::Url("https://x/?q=1") });
        for wrong in ["a", "=x", ""] {
            assert!(Source::parse("--file", wrong).is_err(), "{wrong}");
        }
    }
}
