// Package sqlite is the sqlite capability: one file a database, one writer a
// file whose transaction belongs to the host, and readers that cannot write.
//
// A guest's statements go through an authorizer: transactions, ATTACH, PRAGMA
// and Pelton's own tables (_pelton_*) are not for guests.
package sqlite
