//! The payload of `docker`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::process::{Stdin, check_env, parse_stdin};
use super::{PayloadError, parse_fields, required, wrong};
use crate::said::Said;
use crate::workspace::{self, FileFields, FileSpec, Outputs, WorkDir};

/// Of the name of an image, in bytes; engines take no longer ones.
const IMAGE_BYTES_MAX: usize = 512;
const NETWORK_NONE: &str = "none";

/// `docker`: one command in a container of its own.
#[derive(Debug)]
pub struct DockerPayload {
    pub image: String,
    /// `None`: the image's own.
    pub entrypoint: Option<Vec<String>>,
    /// `None`: the image's own.
    pub command: Option<Vec<String>>,
    pub env: BTreeMap<String, String>,
    pub stdin: Stdin,
    /// `none`, `host`, or the name of one.
    pub network: String,
    /// May an image that is not there be fetched?
    pub pull: bool,
    pub root: Root,
    /// `None`: one that can write to the working directory.
    pub user: Option<User>,
    /// In its working directory when it starts.
    pub(crate) files: Vec<FileSpec>,
    /// What is collected at its end.
    pub(crate) outputs: Outputs,
    /// `None`: as configured.
    pub work_dir: Option<WorkDir>,
    /// As for a process: what is said beside an explicit `stdin`, and so reaches nobody.
    pub unsaid: Option<&'static str>,
}

/// The file system of the image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Root {
    ReadOnly,
    Writable,
}

/// Numbers, because a name means something in the image only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct DockerFields {
    image: String,
    command: Option<Vec<String>>,
    shell: Option<String>,
    entrypoint: Option<Vec<String>>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    stdin: Option<String>,
    #[serde(default)]
    input: bool,
    network: Option<String>,
    #[serde(default)]
    pull: bool,
    read_only: Option<bool>,
    user: Option<String>,
    #[serde(default)]
    files: Vec<FileFields>,
    #[serde(default)]
    outputs: Vec<String>,
    work_dir: Option<String>,
    message: Option<String>,
    media: Option<Vec<Box<RawValue>>>,
    dropped: Option<Vec<String>>,
}

impl DockerPayload {
    pub fn parse(payload: Option<&RawValue>) -> Result<DockerPayload, PayloadError> {
        let fields: DockerFields = parse_fields(required(payload, "an object with image")?)?;
        check_image(&fields.image)?;
        let (entrypoint, command) = parse_command(fields.entrypoint, fields.command, fields.shell)?;
        check_env(&fields.env)?;
        let said = Said { message: fields.message, media: fields.media, dropped: fields.dropped };
        let unsaid = fields.stdin.as_ref().and_then(|_| said.first_field());
        Ok(DockerPayload {
            image: fields.image,
            entrypoint,
            command,
            env: fields.env,
            stdin: parse_stdin(fields.stdin, fields.input, &said)?,
            network: parse_network(fields.network)?,
            pull: fields.pull,
            root: if fields.read_only.unwrap_or(true) { Root::ReadOnly } else { Root::Writable },
            user: fields.user.as_deref().map(parse_user).transpose()?,
            files: workspace::parse_files(fields.files)?,
            outputs: Outputs::parse(fields.outputs)?,
            work_dir: workspace::parse_work_dir(fields.work_dir.as_deref())?,
            unsaid,
        })
    }
}

/// It becomes part of an address on the engine, so it has nothing in it that means something there.
fn check_image(image: &str) -> Result<(), PayloadError> {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "._/:@-".contains(char);
    let begins_well = image.starts_with(|char: char| char.is_ascii_alphanumeric());
    let climbs = image.split('/').any(|part| part.is_empty() || part.starts_with('.'));
    if image.len() > IMAGE_BYTES_MAX {
        return Err(wrong("image", format!("is longer than {IMAGE_BYTES_MAX} bytes")));
    }
    match begins_well && !climbs && image.chars().all(is_plain) {
        true => Ok(()),
        false => Err(wrong("image", format!("`{}` is not the name of an image", image.escape_debug()))),
    }
}

type Words = Option<Vec<String>>;

/// A shell line replaces the image's entry point too: what is meant is the line, whatever the image usually does.
fn parse_command(entrypoint: Words, command: Words, shell: Option<String>) -> Result<(Words, Words), PayloadError> {
    check_words("entrypoint", entrypoint.as_deref())?;
    check_words("command", command.as_deref())?;
    let Some(line) = shell else { return Ok((entrypoint, command)) };
    let beside = [("command", command.is_some()), ("entrypoint", entrypoint.is_some())];
    if let Some((name, _)) = beside.into_iter().find(|(_, is_given)| *is_given) {
        return Err(wrong("shell", format!("is given beside {name}; use one of them")));
    }
    if line.trim().is_empty() {
        return Err(wrong("shell", "is empty"));
    }
    let line = vec![line];
    check_words("shell", Some(&line))?;
    Ok((Some(vec!["sh".to_owned(), "-c".to_owned()]), Some(line)))
}

fn check_words(field: &str, words: Option<&[String]>) -> Result<(), PayloadError> {
    let Some(words) = words else { return Ok(()) };
    if words.first().is_none_or(String::is_empty) {
        return Err(wrong(field, "names no program"));
    }
    match words.iter().position(|word| word.contains('\0')) {
        Some(at) => Err(wrong(format!("{field}[{at}]"), "contains a NUL character")),
        None => Ok(()),
    }
}

/// `container:ID`, which would share the network of a container of somebody else, is no name.
fn parse_network(network: Option<String>) -> Result<String, PayloadError> {
    let Some(name) = network else { return Ok(NETWORK_NONE.to_owned()) };
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "_.-".contains(char);
    match name.starts_with(|char: char| char.is_ascii_alphanumeric()) && name.chars().all(is_plain) {
        true => Ok(name),
        false => Err(wrong("network", format!("`{}` is not the name of a network", name.escape_debug()))),
    }
}

fn parse_user(text: &str) -> Result<User, PayloadError> {
    let number = |part: &str| part.parse::<u32>().ok().filter(|_| part.bytes().all(|byte| byte.is_ascii_digit()));
    let (uid, gid) = text.split_once(':').unwrap_or((text, text));
    match (number(uid), number(gid)) {
        (Some(uid), Some(gid)) => Ok(User { uid, gid }),
        _ => Err(wrong("user", format!("`{}` is not a number, or two with a colon: UID:GID", text.escape_debug()))),
    }
}
