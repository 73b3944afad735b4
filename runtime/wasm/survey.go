package wasm

// survey reads what the rewrite must know before it begins.
func (m *meter) survey(list []section) error {
	for _, s := range list {
		r := m.reader(s.payload, s.at)
		switch s.id {
		case secType:
			m.surveyTypes(r)
		case secImport:
			m.surveyImports(r)
		case secFunction:
			for range r.count(MaxFunctions, "functions") {
				m.functions = append(m.functions, r.index(m.types, "type"))
			}
		case secGlobal:
			m.globals += r.count(MaxGlobals, "globals")
		case secMemory:
			m.surveyMemories(r)
		case secData:
			m.surveyData(r)
		case secDataCount:
			r.u32()
			r.end()
		}
		if r.err != nil {
			return r.err
		}
	}
	return nil
}

// surveyData walks over the data segments: the engine believes what they claim.
func (m *meter) surveyData(r *reader) {
	for range r.count(MaxSegments, "data segments") {
		switch flags := r.u32(); {
		case flags > 2:
			r.fail(ErrMalformed, "data segment form %d is not one", flags)
		case flags == 2:
			if r.u32() != 0 {
				r.fail(ErrUnsupported, "several memories")
			}
			m.constant(r, nil)
		case flags == 0:
			m.constant(r, nil)
		}
		if r.bytes(r.u32()); r.err != nil {
			return
		}
	}
	r.end()
}

func (m *meter) surveyMemories(r *reader) {
	switch n := r.count(MaxSegments, "memories"); n {
	case 0:
	case 1:
		if least, _ := r.limits(); least > MaxMemory {
			r.fail(ErrTooBig, "a memory that begins with %d pages, the limit is %d", least, MaxMemory)
		}
	default:
		r.fail(ErrUnsupported, "several memories")
	}
}

func (m *meter) surveyTypes(r *reader) {
	m.types = r.count(MaxTypes, "types")
	for range m.types {
		if form := r.byte(); form != 0x60 && r.err == nil {
			r.fail(ErrUnsupported, "garbage collection (type form 0x%02x)", form)
		}
		n := r.count(MaxParams, "parameters")
		r.valueTypes(n)
		results := r.count(MaxParams, "results")
		r.valueTypes(results)
		if r.err != nil {
			return
		}
		m.params, m.results = append(m.params, n), append(m.results, results)
	}
}

func (m *meter) surveyImports(r *reader) {
	for range r.count(MaxImports, "imports") {
		r.name()
		r.name()
		switch kind := r.byte(); kind {
		case 0:
			m.signature = append(m.signature, r.index(m.types, "type"))
			m.imported++
		case 1:
			r.referenceType()
			r.limits()
		case 2:
			r.limits()
		case 3:
			r.valueType()
			r.byte()
			m.globals++
		case 4:
			r.fail(ErrUnsupported, "exception handling (an imported tag)")
		default:
			r.fail(ErrMalformed, "import kind %d is not one", kind)
		}
		if r.err != nil {
			return
		}
	}
}

// limits reads the least and the most of a table or memory; most is the largest
// number when there is none.
func (r *reader) limits() (least, most uint32) {
	flags := r.byte()
	if flags > 1 {
		r.fail(ErrUnsupported, "shared or 64-bit memories (limits 0x%02x)", flags)
	}
	least, most = r.u32(), 1<<32-1
	if flags&1 != 0 {
		most = r.u32()
	}
	return least, most
}
