//! Short texts from outside that have a form of their own.

use axum::http::{HeaderMap, HeaderValue};
use proptest::prelude::*;

use crate::edge::traceparent;
use crate::webhook::{secrets_of, signatures};

proptest! {
    #[test]
    fn any_traceparent_is_handed_on_as_it_is_or_ignored(
        text in prop_oneof!["\\PC{0,70}", "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", "[0-9a-fA-F-]{50,60}"],
    ) {
        let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) else { return Ok(()) };
        let headers = HeaderMap::from_iter([(axum::http::HeaderName::from_static("traceparent"), value)]);
        if let Some(taken) = traceparent(&headers) {
            prop_assert_eq!(taken, &text);
            prop_assert_eq!(taken.len(), 55, "nothing longer goes into an environment or a header");
        }
    }

    #[test]
    fn any_webhook_secret_signs_or_is_refused(
        text in prop_oneof!["\\PC{0,80}", "(whsec_[A-Za-z0-9+/]{20,90}={0,2} ?){0,3}"], body in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        if let Ok(secrets) = secrets_of(&text) {
            let signed = signatures(&secrets, "msg_1", 7, &body);
            prop_assert_eq!(signed.split_whitespace().count(), secrets.len());
            prop_assert!(secrets.is_empty() || signed.starts_with("v1,"));
            prop_assert!(secrets.iter().all(|secret| !signed.contains(&secret.reveal())));
        }
    }
}
