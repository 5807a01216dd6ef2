# Makes a machine the one that it is to be, waits for its addresses, and says
# what it is now. It starts one program at most: under emulation each costs as
# much as all the rest. Perl is on every Debian; without modules it starts soonest.
# What to do is read from standard input, or from the file that is named and
# then removed: a line "WORD ARGUMENT... LENGTH", and so many bytes, for each.
if (@ARGV) {
	open STDIN, '<', $ARGV[0] or die "$ARGV[0]: $!\n";
	unlink $ARGV[0];
}
$| = 1;
my $was = content('/etc/machine-id');
chomp $was;
my ($anew, $wrote, $patience, $silent, @wanted);

my %do = (
	# The kernel's random numbers, from other bytes than its source's: random(4).
	entropy => sub {
		open my $random, '+<', '/dev/random' or die "/dev/random: $!\n";
		ioctl $random, 0x40085203, pack('i i a*', 8 * length $_[0], length $_[0], $_[0]) or die "RNDADDENTROPY: $!\n";
		ioctl $random, 0x5207, 0 or die "RNDRESEEDCRNG: $!\n";
	},
	# Nanoseconds that the clock is behind. Numbers of system calls are x86-64's.
	clock => sub {
		my $now = pack 'q2', 0, 0;
		syscall(228, 0, $now) == 0 or die "clock_gettime: $!\n";
		my ($s, $ns) = unpack 'q2', $now;
		$ns += $_[0] % 1_000_000_000;    # never negative
		$s += ($_[0] - $_[0] % 1_000_000_000) / 1_000_000_000 + int($ns / 1_000_000_000);
		syscall(227, 0, pack 'q2', $s, $ns % 1_000_000_000) == 0 or die "clock_settime: $!\n";
	},
	hostname => sub { put('/proc/sys/kernel/hostname', $_[0]) },
	'machine-id' => sub { replace('/etc/machine-id', 0444, "$_[0]\n") },
	# The kernel makes the boot's id once and keeps it; what is read there can be
	# another's all the same.
	'boot-id' => sub {
		my ($from, $to) = ('/run/boot-id', '/proc/sys/kernel/random/boot_id');
		syscall(166, $to, 0);            # umount2, of an earlier time
		put($from, "$_[0]\n");
		syscall(165, $from, $to, 0, 4096, 0) == 0 or die "mount $from on $to: $!\n";    # MS_BIND
		$anew = 1;
	},
	file => sub { replace($_[1], oct $_[2], $_[0]) },
	append => sub {
		my $old = content($_[1]);
		replace($_[1], 0644, $old . $_[0]) if index($old, $_[0]) < 0;
	},
	link => sub {
		parent($_[1]);
		unlink $_[1];
		symlink $_[0], $_[1] or die "$_[1]: $!\n";
		$wrote = 1;
	},
	# MAC and address: as in /proc/net/if_inet6, or four bytes in hexadecimal.
	await => sub { push @wanted, [split / /, $_[0]] },
	patience => sub { $patience = $_[0] },
	silent => sub { $silent = 1 },
);
while (my $line = <STDIN>) {
	chomp $line;
	my ($word, @arguments) = split / /, $line;
	my $length = pop @arguments;
	my $read = read STDIN, my ($data), $length;
	defined $read && $read == $length or die "$word: cut short\n";
	my $act = $do{$word} or die "unknown word $word\n";
	$act->($data, @arguments);
}
syscall 162 if $wrote;    # sync: what a machine is, it is after a power cut too
forget_source() if $anew;
for (my $turn = 0; @wanted && $turn * 0.05 < $patience; $turn++) {
	@wanted = grep { !present(@$_) } @wanted;
	solicit(map { $_->[0] } grep { length $_->[1] > 8 } @wanted) if $turn % 4 == 0;
	select undef, undef, undef, 0.05 if @wanted;
}
exit 0 if $silent;
print content('/etc/machine-id'), content('/proc/sys/kernel/hostname');
exec 'ip', '-json', 'address', 'show' or die "ip: $!\n";

# forget_source has the journal begun anew under this machine's own id, which
# the running one would never look at; its streams stay open meanwhile.
sub forget_source {
	for my $pid (split /\n/, content('/sys/fs/cgroup/system.slice/systemd-journald.service/cgroup.procs')) {
		kill 'TERM', $pid;
	}
	return unless $was =~ /^[0-9a-f]{32}$/ && "$was\n" ne content('/etc/machine-id');
	unlink map { "/var/log/journal/$was/$_" } names("/var/log/journal/$was");
	rmdir "/var/log/journal/$was";
}

# present tells whether a NIC has an address that can be used.
sub present {
	my ($mac, $address) = @_;
	my $name = link_of($mac) or return 0;
	if (length $address > 8) {
		for (split /\n/, content('/proc/net/if_inet6')) {
			my ($has, undef, undef, undef, $flags, $on) = split;
			# Neither tentative nor a duplicate: linux/if_addr.h.
			return 1 if $on eq $name && $has eq $address && !(hex($flags) & 0x48);
		}
		return 0;
	}
	socket my $any, 2, 2, 0 or die "socket: $!\n";    # AF_INET, SOCK_DGRAM
	my $request = pack 'a16 x24', $name;
	ioctl $any, 0x8915, $request or return 0;         # SIOCGIFADDR: netdevice(7)
	return unpack('H*', substr $request, 20, 4) eq $address;
}

# names lists a directory.
sub names {
	opendir my $dir, $_[0] or return;
	return grep { !/^\./ } readdir $dir;
}

# link_of is the name of the link that has a MAC; nothing where there is none.
sub link_of {
	my ($name) = grep { content("/sys/class/net/$_/address") eq "$_[0]\n" } names('/sys/class/net');
	return $name;
}

# solicit asks the routers on links for advertisements, RFC 4861, section 4.1.
# Whoever configures the links does so too, but takes its time.
sub solicit {
	for my $mac (@_) {
		my $name = link_of($mac) or next;
		socket my $raw, 10, 3, 58 or die "socket: $!\n";    # AF_INET6, SOCK_RAW, ICMPv6
		setsockopt $raw, 41, 18, pack 'i', 255;             # IPV6_MULTICAST_HOPS
		my $routers = pack 'S n N H32 L', 10, 0, 0, 'ff02' . '0' x 27 . '2', content("/sys/class/net/$name/ifindex");
		send $raw, pack('C2 n N', 133, 0, 0, 0), 0, $routers;    # fails until the link is up
	}
}

# content is what a file holds; nothing where there is none.
sub content {
	open my $file, '<', $_[0] or return '';
	local $/;
	my $all = <$file>;
	return defined $all ? $all : '';
}

# put writes into a file as it is.
sub put {
	open my $file, '>', $_[0] or die "$_[0]: $!\n";
	print {$file} $_[1] or die "$_[0]: $!\n";
	close $file or die "$_[0]: $!\n";
}

# replace makes a file anew, whole.
sub replace {
	my ($path, $mode, $data) = @_;
	parent($path);
	my $old = umask 077;
	put("$path.new", $data);
	umask $old;
	chmod $mode, "$path.new" or die "$path: $!\n";
	rename "$path.new", $path or die "$path: $!\n";
	$wrote = 1;
}

# parent makes the directories that a file lies in.
sub parent {
	my $dir = '';
	my @parts = split m!/!, $_[0];
	for (@parts[1 .. $#parts - 1]) {
		$dir .= "/$_";
		mkdir $dir, 0755;
	}
}
