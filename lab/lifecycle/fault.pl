# mesh-lab fault: does one fault inside a machine, or undoes it. Arguments: what,
# the fault's name, how much. Without modules, which take longer than all the rest.
my ($what, $name, $much) = @ARGV;
my $file = "/.mesh-lab-fault-$name";
my $title = "mesh-lab-fault $name";

if ($what eq 'fill') {    # the file system of /, but for so many bytes
	unlink $file;
	my ($free, $size) = split ' ', `stat -f -c '%f %S' /`;
	# The file system keeps some of what it calls free for itself: ext4(5).
	for my $kept (glob '/sys/fs/ext4/*/reserved_clusters') {
		open my $number, '<', $kept or die "$kept: $!\n";
		$free -= readline $number;
	}
	# Metadata takes some of it: less is tried where all is too much.
	for my $less (0, 1 << 20, 4 << 20, 16 << 20) {
		my $bytes = $free * $size - $much - $less;
		last if $bytes <= 0 || system('fallocate', '-l', int $bytes, $file) == 0;
	}
	if (!$much) {    # to the last byte
		open my $rest, '>>', $file or die "$file: $!\n";
		1 while syswrite $rest, "\0" x 65536;
	}
	exit !-e $file;
}
if ($what eq 'drain') {
	unlink $file;
	exit -e $file;
}
if ($what eq 'hold') {    # so many MiB
	let_go();
	pipe my $in, my $out or die "pipe: $!\n";
	defined(my $child = fork) or die "fork: $!\n";
	if ($child) {
		close $out;
		exit !defined readline $in;
	}
	close $in;
	setpgrp;
	open STDIN, '<', '/dev/null';
	open STDOUT, '>', '/dev/null';
	open STDERR, '>', '/dev/null';
	# Others are to be short of memory, not this one.
	open my $oom, '>', '/proc/self/oom_score_adj';
	print $oom -1000;
	close $oom;
	$0 = $title;
	my @held;
	push @held, "\1" x (1 << 20) for 1 .. $much;
	syswrite $out, "held\n";
	close $out;
	sleep 3600 while 1;
}
if ($what eq 'let-go') {
	let_go();
	exit 0;
}
if ($what =~ /^step/) {    # the clock, by so many nanoseconds; once, as long as this boot lasts
	my $mark = "/run/mesh-lab-fault-$name";
	unlink $mark if $what eq 'step-again';
	exit 0 if $what eq 'step-back' ? !unlink $mark : -e $mark;
	if ($what ne 'step-back') {
		open my $made, '>', $mark or die "$mark: $!\n";
	}
	my $seconds = int($much / 1e9);
	$seconds-- if $much < $seconds * 1e9;
	adjust(0x0100 | 0x2000, 0, 0, $seconds, $much - $seconds * 1e9);    # ADJ_SETOFFSET, ADJ_NANO
	exit 0;
}
if ($what eq 'drift') {    # the clock, at so many parts per million
	my $ticks = int($much / 100);
	adjust(0x4000 | 0x0002, 10000 + $ticks, ($much - 100 * $ticks) * 65536, 0, 0);    # ADJ_TICK, ADJ_FREQUENCY
	exit 0;
}
die "unknown: $what\n";

sub let_go {
	for my $dir (glob '/proc/[0-9]*') {
		open my $line, '<', "$dir/cmdline" or next;
		my $words = readline $line;
		$words =~ s/\0.*//s;
		kill 'KILL', $dir =~ m{(\d+)$} if $words eq $title;
	}
}

# adjtimex(2), with the struct timex of 64-bit machines.
sub adjust {
	my ($modes, $tick, $frequency, $seconds, $nanoseconds) = @_;
	my $number = `uname -m` =~ /^aarch64/ ? 171 : 159;
	my $timex = pack 'L x4 q q q q l x4 q q q q q q q q l x4 q q q q q l x44',
		$modes, 0, $frequency, 0, 0, 0, 0, 0, 0, $seconds, $nanoseconds, $tick, 0, 0, 0, 0, 0, 0, 0, 0, 0;
	syscall($number, $timex) >= 0 or die "adjtimex: $!\n";
}
