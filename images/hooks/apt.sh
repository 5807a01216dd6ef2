# Packages come from the world of the scenario and from nowhere else: those the
# image offers, whose list the build puts here beside, and what else a scenario
# has, which the lab adds.
rm -f /etc/apt/sources.list.d/* /etc/apt/apt.conf.d/99mmdebstrap
cat > /etc/apt/sources.list <<END
deb [trusted=yes] http://packages.world.test/$IMAGE/ ./
END
cat > /etc/apt/apt.conf.d/50mesh-lab <<'END'
Acquire::Languages "none";
Acquire::PDiffs "false";
APT::Install-Recommends "false";
END
rm -rf /var/cache/apt/* /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log /var/log/alternatives.log
mkdir -p /var/cache/apt/archives/partial /var/lib/apt/lists/partial
