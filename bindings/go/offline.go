package extant

/*
#include <stdlib.h>
#include <extant.h>
extern void goExtantFinding(void *user, struct extant_finding *finding);
*/
import "C"

import (
	"runtime/cgo"
	"unsafe"
)

// Finding is a fault of an image.
type Finding struct {
	Rule  string // name of the broken rule, such as "link-count"
	Text  string // place and detail
	Block uint64 // 0: none
	Inode uint32 // 0: none
	Group int    // -1: none
}

// Report is the result of a check. Findings may be fewer than Faults: a badly damaged image has too many to list.
type Report struct {
	Faults   uint64
	Findings []Finding
}

// Check checks an image that no process has open for writing. Nothing is written.
func Check(path string) (Report, error) {
	if err := noNUL("check", path); err != nil {
		return Report{}, err
	}
	var a arena
	defer a.free()
	var report Report
	user, release := passed(&report)
	defer release()
	var faults C.uint64_t
	_, err := at("check", path, func() C.ssize_t {
		return C.ssize_t(C.extant_check(a.str(path), (*[0]byte)(C.goExtantFinding), user, &faults))
	})
	report.Faults = uint64(faults)
	return report, err
}

//export goExtantFinding
func goExtantFinding(user unsafe.Pointer, finding *C.struct_extant_finding) {
	report := (*(*cgo.Handle)(user)).Value().(*Report)
	report.Findings = append(report.Findings, Finding{
		Rule:  C.GoString(finding.rule),
		Text:  C.GoString(finding.text),
		Block: uint64(finding.block),
		Inode: uint32(finding.inode),
		Group: int(int32(finding.group)),
	})
}

// ChangeOptions say how a closed image is changed.
type ChangeOptions struct {
	DryRun   bool   // only plan; nothing is written
	SafeOnly bool   // only for Repair: no change that loses anything
	Undo     string // new file that keeps the old bytes, for `extant undo`
}

func (o ChangeOptions) flags() C.unsigned {
	var flags C.unsigned
	if o.DryRun {
		flags |= C.EXTANT_DRY_RUN
	}
	if o.SafeOnly {
		flags |= C.EXTANT_SAFE_ONLY
	}
	return flags
}

// Repaired is the result of a repair.
type Repaired struct {
	Mends, Declined, FaultsBefore, FaultsAfter uint64
}

// Repair repairs an image that no process has open. The change is checked in memory before it is written.
func Repair(path string, options ChangeOptions) (Repaired, error) {
	if err := noNUL("repair", path, options.Undo); err != nil {
		return Repaired{}, err
	}
	var a arena
	defer a.free()
	var c C.struct_extant_repair_result
	_, err := at("repair", path, func() C.ssize_t {
		return C.ssize_t(C.extant_repair(a.str(path), options.flags(), a.opt(options.Undo), &c))
	})
	return Repaired{uint64(c.mends), uint64(c.declined), uint64(c.faults_before), uint64(c.faults_after)}, err
}

// Resize grows or shrinks an image that no process has open to a number of bytes, or with 0 to the least size that its files fit
// in. It returns the new size.
func Resize(path string, size int64, options ChangeOptions) (int64, error) {
	if err := noNUL("resize", path, options.Undo); err != nil {
		return 0, err
	}
	var a arena
	defer a.free()
	var c C.struct_extant_resize_result
	_, err := at("resize", path, func() C.ssize_t {
		return C.ssize_t(C.extant_resize(a.str(path), C.uint64_t(size), options.flags(), a.opt(options.Undo), &c))
	})
	return int64(c.bytes), err
}

// TuneOptions are the properties to change. Zero values leave everything unchanged.
type TuneOptions struct {
	Features        string    // as tune2fs -O: "name,^name"
	Label           *string   // at most 16 bytes
	Quota           string    // as tune2fs -Q
	MountOptions    string    // as tune2fs -o
	UUID            *[16]byte //
	ReservedPercent *float64  // 0 to 50
	JournalSize     int64     // bytes, a multiple of 1 MiB
}

// Tune changes properties of an image that no process has open, and returns the number of changes.
func Tune(path string, properties TuneOptions, options ChangeOptions) (int, error) {
	var label string
	if properties.Label != nil {
		label = *properties.Label
	}
	if err := noNUL("tune", path, options.Undo, properties.Features, label, properties.Quota, properties.MountOptions); err != nil {
		return 0, err
	}
	var a arena
	defer a.free()
	var changes C.uint64_t
	c := C.struct_extant_tune_options{
		features:      a.opt(properties.Features),
		quota:         a.opt(properties.Quota),
		mount_options: a.opt(properties.MountOptions),
		journal_size:  C.uint64_t(properties.JournalSize),
	}
	if properties.Label != nil {
		c.label = a.str(label)
	}
	if properties.UUID != nil {
		p := C.CBytes(properties.UUID[:])
		a = append(a, p)
		c.uuid = (*C.uint8_t)(p)
	}
	if properties.ReservedPercent != nil {
		p := C.malloc(C.size_t(unsafe.Sizeof(C.double(0))))
		a = append(a, p)
		*(*C.double)(p) = C.double(*properties.ReservedPercent)
		c.reserved_percent = (*C.double)(p)
	}
	_, err := at("tune", path, func() C.ssize_t {
		return C.ssize_t(C.extant_tune(a.str(path), &c, options.flags(), a.opt(options.Undo), &changes))
	})
	return int(changes), err
}
