//! The suite on PostgreSQL, and what only a shared database can do: be taken over, be lost, be of another version.

#![allow(clippy::unwrap_used)]

mod postgres {
    mod link;

    mod audit;
    mod depot;
    mod lease;
    mod lost;
    mod migrations;
    mod passing;
    mod suite;
    mod tls;
}
