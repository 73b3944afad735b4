package sqlite

import (
	"strings"

	"modernc.org/sqlite"
)

// refused names what a guest's statement wants and does not get; "" is permitted.
// What is not known here is refused.
func refused(action sqlite.AuthorizerActionCode, arg1, arg2, database string) string {
	if database != "" && database != "main" {
		return "database " + database
	}
	for _, name := range []string{arg1, arg2} {
		if reserved(name) {
			return name + ", which is Pelton's own"
		}
	}
	switch action {
	case sqlite.AuthSelect, sqlite.AuthInsert, sqlite.AuthUpdate, sqlite.AuthDelete, sqlite.AuthRecursive,
		sqlite.AuthCreateTable, sqlite.AuthCreateIndex, sqlite.AuthCreateView, sqlite.AuthCreateTrigger,
		sqlite.AuthDropTable, sqlite.AuthDropIndex, sqlite.AuthDropView, sqlite.AuthDropTrigger, sqlite.AuthDropVTable,
		sqlite.AuthReindex, sqlite.AuthAnalyze:
		return ""
	case sqlite.AuthRead:
		return table(arg1)
	case sqlite.AuthFunction:
		return function(arg2)
	case sqlite.AuthPragma:
		return pragma(arg1, arg2)
	case sqlite.AuthCreateVTable:
		if modules[strings.ToLower(arg2)] {
			return ""
		}
		return "module " + arg2
	}
	return kinds[action]
}

// kinds names what is refused whatever it is about.
var kinds = map[sqlite.AuthorizerActionCode]string{
	sqlite.AuthTransaction: "BEGIN, COMMIT and ROLLBACK: transactions belong to the host",
	sqlite.AuthSavepoint:   "SAVEPOINT: transactions belong to the host",
	sqlite.AuthAttach:      "ATTACH, and what needs it, as VACUUM does",
	sqlite.AuthDetach:      "DETACH",
	sqlite.AuthAlterTable:  "ALTER TABLE: changes of tables belong in migrations",

	sqlite.AuthCreateTempIndex: "temporary objects", sqlite.AuthCreateTempTable: "temporary objects",
	sqlite.AuthCreateTempTrigger: "temporary objects", sqlite.AuthCreateTempView: "temporary objects",
	sqlite.AuthDropTempIndex: "temporary objects", sqlite.AuthDropTempTable: "temporary objects",
	sqlite.AuthDropTempTrigger: "temporary objects", sqlite.AuthDropTempView: "temporary objects",
}

// reserved reports whether a name is one of the host's tables.
func reserved(name string) bool {
	const prefix = "_pelton_"
	return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}

// table names a table that shows what is beside the guest's tables: pages as they
// are in the file, and lists of what the library can do.
func table(name string) string {
	lower := strings.ToLower(name)
	if lower == "sqlite_dbpage" || lower == "dbstat" {
		return name
	}
	if shown, ok := strings.CutPrefix(lower, "pragma_"); ok && !pragmas[shown] {
		return name
	}
	return ""
}

// pragma names a PRAGMA that is not one of those that only read what is the
// guest's.
func pragma(name, argument string) string {
	lower := strings.ToLower(name)
	if pragmas[lower] || argument == "" && figures[lower] {
		return ""
	}
	return "PRAGMA " + name
}

// pragmas tell about one table or index.
var pragmas = set("table_info table_xinfo index_list index_info index_xinfo foreign_key_list")

// figures are read without an argument, some by FTS5 and R-trees on their own
// account.
var figures = set("data_version user_version page_size")

// modules are those of virtual tables.
var modules = set("fts5 fts5vocab rtree rtree_i32 geopoly")

func function(name string) string {
	if functions[strings.ToLower(name)] {
		return ""
	}
	return "function " + name
}

// functions are those that compute from their arguments, and the time
// (https://www.sqlite.org/lang_corefunc.html and the pages beside it).
var functions = set(`-> ->> abs acos acosh asin asinh atan atan2 atanh avg bm25 ceil ceiling changes char coalesce concat
	concat_ws cos cosh count cume_dist current_date current_time current_timestamp date datetime degrees dense_rank exp
	first_value floor format geopoly_area geopoly_bbox geopoly_blob geopoly_ccw geopoly_contains_point geopoly_group_bbox
	geopoly_json geopoly_overlap geopoly_regular geopoly_svg geopoly_within geopoly_xform glob group_concat hex highlight if
	ifnull iif instr json json_array json_array_insert json_array_length json_each json_error_position json_extract
	json_group_array json_group_object json_insert json_object json_patch json_pretty json_quote json_remove json_replace
	json_set json_tree json_type json_valid jsonb jsonb_array jsonb_array_insert jsonb_extract jsonb_group_array
	jsonb_group_object jsonb_insert jsonb_object jsonb_patch jsonb_remove jsonb_replace jsonb_set julianday lag
	last_insert_rowid last_value lead length like likelihood likely ln log log10 log2 lower ltrim match max median min mod
	nth_value ntile nullif octet_length percent_rank pi pow power printf quote radians random randomblob rank regexp replace
	round row_number rtrim sign sin sinh snippet soundex sqrt strftime string_agg substr substring subtype sum tan tanh time
	timediff total total_changes trim trunc typeof unhex unicode unistr unistr_quote unixepoch unlikely upper zeroblob`)

func set(words string) map[string]bool {
	all := map[string]bool{}
	for _, w := range strings.Fields(words) {
		all[w] = true
	}
	return all
}
