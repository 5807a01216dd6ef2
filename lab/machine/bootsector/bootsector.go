// Package bootsector makes disks that prove, within a tenth of a second and
// without any image, that a machine really runs: the firmware of a PC loads the
// first sector and jumps into it.
//
// It is pure. Each function returns a whole raw disk.
package bootsector

// Size is the length of every disk made here, all but the first sector zero. The
// firmware does not boot a disk of less than one cylinder.
const Size = 1 << 20

const sector = 512

// ExitPort is where Exit writes; QEMU listens there with
// `-device isa-debug-exit,iobase=0xf4,iosize=1`.
const ExitPort = 0xf4

// ExitStatus is what QEMU's process ends with when Exit has run: twice the
// value written, plus one.
const ExitStatus = 0x10<<1 | 1

// Exit counts to sixteen million and ends QEMU with ExitStatus. The counting is
// nothing to a processor, a tenth of a second to an emulated one, and many
// seconds to a hypervisor that interprets a machine's instructions one by one. A
// machine without the device halts.
func Exit() []byte {
	return disk(
		0x66, 0xb9, 0x00, 0x00, 0x00, 0x01, // mov ecx, 1<<24
		0x67, 0xe2, 0xfd, // count: loop count
		0xba, ExitPort, 0x00, // mov dx, ExitPort
		0xb0, 0x10, // mov al, 0x10
		0xee, // out dx, al
	)
}

// Halt does nothing, for ever.
func Halt() []byte { return disk() }

// Panic reports a kernel panic on the panic device, and halts.
func Panic() []byte {
	// Port and value: qemu docs/specs/pvpanic.
	return disk(
		0xba, 0x05, 0x05, // mov dx, 0x505
		0xb0, 0x01, // mov al, 1: panicked
		0xee, // out dx, al
	)
}

// PowerOff switches a q35 machine off through ACPI.
func PowerOff() []byte {
	// PM1a control block of q35 as its firmware places it; SLP_EN: ACPI 4.8.3.2.1.
	return disk(
		0xba, 0x04, 0x06, // mov dx, 0x604
		0xb8, 0x00, 0x20, // mov ax, 0x2000
		0xef, // out dx, ax
	)
}

// Print writes text to the first serial port, and halts. Text has at most 400
// bytes and no NUL; what is beyond either is not written.
func Print(text string) []byte {
	const at = 0x7c00 + 31 + 4 // where the firmware loads the sector, past the code below and halt
	code := []byte{
		0x31, 0xc0, // xor ax, ax
		0x8e, 0xd8, // mov ds, ax
		0xfc,                     // cld
		0xbe, at & 0xff, at >> 8, // mov si, text
		// next:
		0xac,       // lodsb
		0x84, 0xc0, // test al, al
		0x74, 0x12, // jz halt
		0x88, 0xc4, // mov ah, al
		0xba, 0xfd, 0x03, // mov dx, 0x3fd: line status
		// wait:
		0xec,       // in al, dx
		0xa8, 0x20, // test al, 0x20: ready to send
		0x74, 0xfb, // jz wait
		0x88, 0xe0, // mov al, ah
		0xba, 0xf8, 0x03, // mov dx, 0x3f8: data
		0xee,       // out dx, al
		0xeb, 0xe9, // jmp next
	}
	code = append(code, halt[:]...)
	code = append(code, text[:min(len(text), 400)]...)
	return disk(append(code, 0)...)
}

// Count writes how often the timer has ticked, 18 times a second, to the first
// serial port: four hexadecimal digits and a line end each time. It keeps the
// number in memory, so it goes on where it was when the memory is put back.
func Count() []byte {
	return disk(
		0x31, 0xc0, // xor ax, ax
		0x8e, 0xd8, // mov ds, ax
		0xc7, 0x06, 0x00, 0x7e, 0x00, 0x00, // mov word [0x7e00], 0
		// count:
		0xfb,                   // sti
		0xf4,                   // hlt: until the timer ticks
		0xff, 0x06, 0x00, 0x7e, // inc word [0x7e00]
		0x8b, 0x1e, 0x00, 0x7e, // mov bx, [0x7e00]
		0xb9, 0x04, 0x00, // mov cx, 4
		// digit:
		0xc1, 0xc3, 0x04, // rol bx, 4
		0x88, 0xd8, // mov al, bl
		0x24, 0x0f, // and al, 0x0f
		0x3c, 0x0a, // cmp al, 10
		0x1c, 0x69, // sbb al, 0x69
		0x2f,             // das: now it is the digit's letter
		0xe8, 0x09, 0x00, // call send
		0xe2, 0xef, // loop digit
		0xb0, 0x0a, // mov al, line end
		0xe8, 0x02, 0x00, // call send
		0xeb, 0xdb, // jmp count
		// send:
		0x88, 0xc4, // mov ah, al
		0xba, 0xfd, 0x03, // mov dx, 0x3fd: line status
		// wait:
		0xec,       // in al, dx
		0xa8, 0x20, // test al, 0x20: ready to send
		0x74, 0xfb, // jz wait
		0x88, 0xe0, // mov al, ah
		0xba, 0xf8, 0x03, // mov dx, 0x3f8: data
		0xee, // out dx, al
		0xc3, // ret
	)
}

// halt stops the processor, whatever interrupts it.
var halt = [...]byte{
	0xfa,       // cli
	0xf4,       // hlt
	0xeb, 0xfd, // jmp hlt
}

// disk begins with a sector of code, and halt after it.
func disk(code ...byte) []byte {
	d := make([]byte, Size)
	n := copy(d, code)
	copy(d[n:sector-2], halt[:])
	d[sector-2], d[sector-1] = 0x55, 0xaa // what the firmware looks for
	return d
}
