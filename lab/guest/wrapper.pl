# Runs a command and prints what it prints, the first MiB of each output; more
# goes to files. Arguments: the beginning of the files' names, the command.
# Perl is on every Debian, and starts sooner than the three programs that a shell
# needs for the same. Without modules, which take longer than all the rest.
my ($base, @command) = @ARGV;
my $most = 1 << 20;

setpgrp;    # so that all of it can be ended
if (-e "$base.i") {    # input that was too long for the agent
	open STDIN, '<', "$base.i" or die "$base.i: $!\n";
	unlink "$base.i";
}
pipe my $out, my $out_end or die "pipe: $!\n";
pipe my $err, my $err_end or die "pipe: $!\n";
my $child = fork;
defined $child or die "fork: $!\n";
if (!$child) {
	open STDOUT, '>&', $out_end;
	open STDERR, '>&', $err_end;
	exec { $command[0] } @command;
	my $code = $! == 2 ? 127 : 126;    # ENOENT
	print STDERR "$command[0]: $!\n";
	exit $code;
}
close $out_end;
close $err_end;

my %from = (
	fileno $out => { from => $out, to => \*STDOUT, more => "$base.o", left => $most },
	fileno $err => { from => $err, to => \*STDERR, more => "$base.e", left => $most },
);
my $status;
while (%from) {
	my $ready = '';
	vec($ready, $_, 1) = 1 for keys %from;
	# What goes on in the background may keep the pipes open for ever.
	my $n = select $ready, undef, undef, defined $status ? 0 : 0.2;
	last if $n == 0 && defined $status;
	for my $fd (keys %from) {
		next unless $n > 0 && vec $ready, $fd, 1;
		sysread $from{$fd}{from}, my $data, 1 << 16 or delete $from{$fd}, next;
		pass($from{$fd}, $data);
	}
	$status = $? if !defined $status && waitpid($child, 1) == $child;    # WNOHANG
}
if (!defined $status) {
	waitpid $child, 0;
	$status = $?;
}
exit($status & 127 ? 128 + ($status & 127) : $status >> 8);

# pass writes data where it belongs.
sub pass {
	my ($stream, $data) = @_;
	my $now = substr $data, 0, $stream->{left}, '';
	while (length $now) {
		my $wrote = syswrite $stream->{to}, $now or exit 125;
		substr $now, 0, $wrote, '';
		$stream->{left} -= $wrote;
	}
	return if $stream->{left};
	if (!$stream->{file}) {
		open $stream->{file}, '>', $stream->{more} or exit 125;
	}
	while (length $data) {
		my $wrote = syswrite $stream->{file}, $data or exit 125;
		substr $data, 0, $wrote, '';
	}
}
