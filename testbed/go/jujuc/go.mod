module jujuc

go 1.26
