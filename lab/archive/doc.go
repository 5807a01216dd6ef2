// Package archive brings snapshots of scenarios to other stores: as one file
// (Export, Import), or straight to another lab machine with the scenario ended
// here once it runs there (Move).
//
// A file is a tar archive compressed with zstd (RFC 8878). Its first entry,
// archive.json, is an Index: everything that decides whether the file is of use
// somewhere, with the snapshot's own manifest in it. All other entries are
// contents, files/SHA256, each once. Nothing in a file says where anything is to
// lie: who imports it decides that by the Index, whose paths stay below the
// directories that they are of.
//
// Only cmd/lab imports it.
package archive
