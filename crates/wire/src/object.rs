//! Requests are objects. What serde derives for a struct would also take a list of all its fields in their order, which
//! nobody means: `{"retry": [9, 5]}` is a mistake that must be named, not nine retries.

/// Gives a type that derives with `#[serde(remote = "Self")]` its `Serialize` and `Deserialize`: the derived ones, but
/// of a JSON object only. Nothing is buffered on the way.
macro_rules! object {
    ($($type:ident),+ $(,)?) => { $(
        impl ::serde::Serialize for $type {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                // The inherent function, which is what the derive made.
                $type::serialize(self, serializer)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                struct ObjectVisitor;
                impl<'de> ::serde::de::Visitor<'de> for ObjectVisitor {
                    type Value = $type;

                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: ::serde::de::MapAccess<'de>>(self, map: A) -> Result<$type, A::Error> {
                        $type::deserialize(::serde::de::value::MapAccessDeserializer::new(map))
                    }
                }
                deserializer.deserialize_map(ObjectVisitor)
            }
        }
    )+ };
}

pub(crate) use object;

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use crate::*;

    fn refused<T: DeserializeOwned + std::fmt::Debug>(body: &str) -> String {
        let error = parse::<T>(body.as_bytes()).expect_err(body);
        assert!(error.message.contains("must be an object, not a list"), "{body}: {error}");
        error.field
    }

    #[test]
    fn no_request_is_a_list() {
        assert_eq!(refused::<TaskRequest>(r#"["noop"]"#), "");
        assert_eq!(refused::<BatchRequest>(r#"["all",null,null,null,null,null,null,[{"kind":"noop"}]]"#), "");
        assert_eq!(refused::<ChangeRequest>(r#"["high",7,null,null]"#), "");
        assert_eq!(refused::<CancelRequest>(r#"["why"]"#), "");
        assert_eq!(refused::<HeartbeatRequest>(r#"[0.5,"why"]"#), "");
        assert_eq!(refused::<CancelFilter>(r#"["a",[],null,null,null,null,null]"#), "");
        assert_eq!(refused::<AgentPut>("[1,1,false,null]"), "");
        assert_eq!(refused::<LanePut>("[3,false]"), "");
        assert_eq!(refused::<DrainRequest>("[true]"), "");
        assert_eq!(refused::<KeyRequest>(r#"["k",["read"],null]"#), "");
        assert_eq!(refused::<BackupRequest>(r#"["copy.db"]"#), "");
        assert_eq!(refused::<ConfigPatch>("[]"), "");
        assert_eq!(refused::<SessionSettings>(r#"["queue",1,"old",0,0,1]"#), "");
        assert_eq!(refused::<SessionContext>("[1,2]"), "");
        assert_eq!(refused::<InputRequest>(r#"["hello"]"#), "");
        assert_eq!(refused::<PauseRequest>(r#"["why"]"#), "");
        assert_eq!(refused::<PreviewRequest>(r#"[{"kind":"at"},3]"#), "");
        assert_eq!(refused::<SchedulePatch>("[]"), "");
        assert_eq!(refused::<ScheduleRequest>(r#"["n",{"kind":"at"},{}]"#), "");
        assert_eq!(refused::<WorkerRequest>(r#"["w"]"#), "");
        assert_eq!(refused::<SyncRequest>(r#"["1"]"#), "");
    }

    #[test]
    fn a_list_inside_a_request_is_named() {
        assert_eq!(refused::<TaskRequest>(r#"{"kind":"noop","retry":[9,5,2,9,0,null]}"#), "retry");
        assert_eq!(refused::<TaskRequest>(r#"{"kind":"noop","limits":[1,2,3,4]}"#), "limits");
        assert_eq!(refused::<TaskRequest>(r#"{"kind":"noop","place":[{},{},{},null]}"#), "place");
        assert_eq!(refused::<TaskRequest>(r#"{"kind":"noop","resources":[1,2]}"#), "resources");
        assert_eq!(refused::<TaskRequest>(r#"{"kind":"noop","metadata":[]}"#), "metadata");
        assert_eq!(refused::<BatchRequest>(r#"{"tasks":[{"kind":"noop"},["noop"]]}"#), "tasks[1]");
        assert_eq!(refused::<BatchRequest>(r#"{"tasks":[],"defaults":["noop"]}"#), "defaults");
        assert_eq!(refused::<ScheduleRequest>(r#"{"name":"n","schedule":["cron","@daily"],"task":{}}"#), "schedule");
    }

    #[test]
    fn what_is_no_object_at_all_says_what_is_expected() {
        let error = parse::<TaskRequest>(br#"{"kind":"noop","retry":3}"#).unwrap_err();
        assert_eq!(error.field, "retry");
        assert!(error.message.contains("expected an object"), "{error}");
    }
}
