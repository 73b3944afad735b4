package engine

// boardLane adds to the first call of the lane as many as all of them may have
// beside them.
func (p *Pool) boardLane(fresh []*seat) []*seat {
	company := fresh[0].call.Company
	for len(p.apart) > 0 && len(fresh) < cap(fresh) {
		next := p.apart[0]
		if company = min(company, next.call.Company); len(fresh) >= company {
			break
		}
		fresh = append(fresh, next)
		p.apart = drop(p.apart, 1)
	}
	return fresh
}

// enterLane runs a call that was in an instance that went down, with no more
// beside it than its company. There is one such instance at a time, beside the
// others of the pool and not counted among them: what happens there holds nobody
// else up.
func (p *Pool) enterLane(s *seat) error {
	s.wait()
	p.mu.Lock()
	p.apart = append(p.apart, s)
	if !p.lane {
		p.lane = true
		p.nextApart(nil)
	}
	p.mu.Unlock()
	return p.await(s)
}

// nextApart has the next call in the lane go on, on an instance if there is one.
func (p *Pool) nextApart(in *instance) bool {
	if len(p.apart) == 0 {
		p.lane = false
		return false
	}
	s := p.apart[0]
	p.apart = drop(p.apart, 1)
	s.turn <- turn{drive: in, create: in == nil, apart: true}
	return true
}
